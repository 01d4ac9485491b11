// SPDX-License-Identifier: Apache-2.0
// Attacks over loopback TCP on a job that trains, by a client with a key.
#include <poll.h>

#include <chrono>
#include <zmq.hpp>

#include "control/debian_version.h"
#include "control/host/process_identity.h"
#include "control/hub/keys/curve_keys.h"
#include "control/wire/messages.h"
#include "tests/support/process_figures.h"
#include "tests/whole/hostile/attack.h"
#include "tests/whole/hostile/keyed_job.h"
#include "tests/whole/hostile/unharmed.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using Clock = std::chrono::steady_clock;

ClientKeys alices_keys(const KeyedJob& job) { return *read_operator_keys(job.keys_of("alice")); }

zmq::socket_t connected(zmq::context_t& context, const std::string& endpoint, const ClientKeys& keys) {
  const auto buffer = [](const KeyBytes& key) { return zmq::buffer(key.data(), key.size()); };
  zmq::socket_t socket(context, zmq::socket_type::dealer);
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::rcvhwm, 1);
  socket.set(zmq::sockopt::rcvbuf, 4096);
  socket.set(zmq::sockopt::curve_serverkey, buffer(keys.server_public));
  socket.set(zmq::sockopt::curve_publickey, buffer(keys.secret.public_key()));
  socket.set(zmq::sockopt::curve_secretkey, buffer(keys.secret.bytes()));
  socket.connect(endpoint);
  return socket;
}

// Asks and never reads an answer, as fast as the hub takes it, or each `pause`;
// until killed.
int ask_without_end(const std::string& endpoint, const ClientKeys& keys, CommandVerb verb, int pause_ms) {
  zmq::context_t context;
  zmq::socket_t socket = connected(context, endpoint, keys);
  Command command;
  command.verb = verb;
  command.by = "nobody";
  for (std::uint64_t i = 0;; ++i) {
    command.request_id = std::to_string(i);
    const std::string bytes = encode(Frame(command));
    socket.send(zmq::buffer(bytes), zmq::send_flags::none);
    if (pause_ms > 0) ::poll(nullptr, 0, pause_ms);
  }
}

// Messages as long as they may be and of no meaning; until killed.
int send_long_messages(const std::string& endpoint, const ClientKeys& keys) {
  zmq::context_t context;
  zmq::socket_t socket = connected(context, endpoint, keys);
  const std::string bytes(std::size_t{2} << 20U, '\xff');
  for (;;) socket.send(zmq::buffer(bytes), zmq::send_flags::none);
}

// A config near the bound, so that an answer with it is long.
void give_a_long_config(KeyedJob& job) {
  write_text(job.job().config_path,
             R"({"dynamic_on": false, "wg_distribution": true, "note": ")" + std::string(900'000, 'x') + "\"}");
  Command config;
  config.verb = CommandVerb::config;
  REQUIRE(eventually([&] { return job.ask(config, job.keys()).config_text.size() > 900'000; }));
}

TEST_CASE("a client that never reads its answers is cut off before they fill the hub") {
  KeyedJob job(2);
  give_a_long_config(job);
  const ClientKeys keys = alices_keys(job);
  const Unharmed unharmed(job);
  {
    const Attack unread([&] { return ask_without_end(job.endpoint(), keys, CommandVerb::config, 5); });
    for (int i = 0; i < 4; ++i) unharmed.check("a client that never reads");
  }
  unharmed.check("after a client that never reads");
}

TEST_CASE("a client that floods the hub with questions keeps nobody from being served") {
  KeyedJob job(2);
  const ClientKeys keys = alices_keys(job);
  const Unharmed unharmed(job);
  const Attack flood([&] { return ask_without_end(job.endpoint(), keys, CommandVerb::status, 0); });
  for (int i = 0; i < 4; ++i) unharmed.check("a client that asks without end");
}

TEST_CASE("a client that sends long messages of no meaning keeps nobody from being served") {
  KeyedJob job(2);
  const ClientKeys keys = alices_keys(job);
  const Unharmed unharmed(job);
  const Attack flood([&] { return send_long_messages(job.endpoint(), keys); });
  for (int i = 0; i < 4; ++i) unharmed.check("a client that sends messages of 2 MiB");
}

}  // namespace
}  // namespace gradmon

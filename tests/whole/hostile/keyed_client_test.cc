// SPDX-License-Identifier: Apache-2.0
// Attacks over loopback TCP on a training job, by a client with a key.
#include <poll.h>

#include <string>
#include <zmq.hpp>

#include "control/debian_version.h"
#include "control/hub/keys/curve_keys.h"
#include "control/wire/messages.h"
#include "tests/whole/hostile/attack.h"
#include "tests/whole/hostile/harm_check.h"
#include "tests/whole/hostile/keyed_job.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

ClientKeys keys_of_alice(const KeyedJob& job) { return *read_operator_keys(job.keys_of("alice")); }

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

// Until killed: sends a command every `pause_ms`, or as fast as the hub takes it, and
// never reads an answer.
int flood_commands(const std::string& endpoint, const ClientKeys& keys, CommandVerb verb, int pause_ms) {
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

// Until killed: sends meaningless messages of 2 MiB, which is within the size limit.
int send_long_messages(const std::string& endpoint, const ClientKeys& keys) {
  zmq::context_t context;
  zmq::socket_t socket = connected(context, endpoint, keys);
  const std::string bytes(std::size_t{2} << 20U, '\xff');
  for (;;) socket.send(zmq::buffer(bytes), zmq::send_flags::none);
}

// A config near the size limit makes the answer that contains it long.
void write_long_config(KeyedJob& job) {
  write_text(job.job().config_path, R"({"dynamic_on": false, "wg_distribution": true, "note": ")" +
                                        std::string(900'000, 'x') + "\"}");
  Command config;
  config.verb = CommandVerb::config;
  REQUIRE(eventually([&] { return job.ask(config, job.keys()).config_text.size() > 900'000; }));
}

// The hub logs at this level what it did to a client.
constexpr const char* kLogAll = "export GRADMON_LOG=debug;";

// Waits for a line of the hub's log: without it the attack would not have taken place.
bool hub_has_logged(const KeyedJob& job, const std::string& text) {
  return eventually([&] { return job.hub_log().find(text) != std::string::npos; });
}

TEST_CASE("a client that never reads its answers is cut off and does not fill the hub's memory") {
  KeyedJob job(2, kLogAll);
  write_long_config(job);
  const ClientKeys keys = keys_of_alice(job);
  const HarmCheck harm(job);
  {
    Attack unread([&] { return flood_commands(job.endpoint(), keys, CommandVerb::config, 5); });
    for (int i = 0; i < 4; ++i) harm.check("a client that never reads");
    CHECK(unread.running());
    CHECK(hub_has_logged(job, "disconnected a network client: it does not read what it is sent"));
  }
  harm.check("after a client that never reads");
}

TEST_CASE("a client that floods the hub with commands is cut off and does not block honest clients") {
  KeyedJob job(2, kLogAll);
  const ClientKeys keys = keys_of_alice(job);
  const HarmCheck harm(job);
  Attack flood([&] { return flood_commands(job.endpoint(), keys, CommandVerb::status, 0); });
  for (int i = 0; i < 4; ++i) harm.check("a client that asks without end");
  CHECK(flood.running());
  CHECK(hub_has_logged(job, "disconnected a network client: "));
}

TEST_CASE("long meaningless messages of a client are dropped and do not block honest clients") {
  KeyedJob job(2);
  const ClientKeys keys = keys_of_alice(job);
  const HarmCheck harm(job);
  Attack flood([&] { return send_long_messages(job.endpoint(), keys); });
  for (int i = 0; i < 4; ++i) harm.check("a client that sends messages of 2 MiB");
  CHECK(flood.running());
  CHECK(hub_has_logged(job, " from the network dropped; the last: "));
}

}  // namespace
}  // namespace gradmon

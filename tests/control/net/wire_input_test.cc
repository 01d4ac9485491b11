// SPDX-License-Identifier: Apache-2.0
// What strangers send to a rank 0, and what it makes of its endpoint.
#include <unistd.h>

#include <random>

#include "control/debian_version.h"
#include "control/net/bus.h"
#include "control/net/dropped_messages.h"
#include "control/net/keygen.h"
#include "control/net/messages.h"
#include "control/net/process_identity.h"
#include "tests/control/net/lone_rank.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

std::string hello(std::uint32_t version) {
  Hello hello;
  hello.process_id = random_hex(16);
  hello.world_size = 1;
  hello.version = version;
  return encode(Frame(Letter{"", Rank{1}, 0, hello}));
}

TEST_CASE("messages that make no sense are dropped and counted and told in the status") {
  const LoneRank rank;
  const auto stranger = *Bus::ask({kMostBytesDown});
  REQUIRE(stranger->connect(rank.endpoint()));
  std::mt19937 random(1);
  std::string noise(5000, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  const std::string epoch = rank.ask().epoch;
  const std::vector<std::string> nonsense = {
      "",
      "x",
      noise,
      std::string(60'000, '\xff'),
      hello(1),                                                 // of a rank that this job does not have
      encode(Frame(Letter{epoch, Rank{0}, 1, Left{Step{5}}})),  // as rank 0, from outside
      encode(Frame(Letter{epoch, Rank{-1}, 1, Left{Step{5}}})),
      encode(Frame(Letter{epoch, Rank{1 << 30}, 1, Left{Step{5}}})),
      encode(Frame(AddressedReply{"x", CommandReply{}})),
  };
  for (const std::string& bytes : nonsense) stranger->send("", bytes);
  const std::string last = std::to_string(nonsense.size()) + " messages from the network dropped; the last: ";
  CHECK(rank.warning(last) == last + "an answer to nobody here");
  CHECK(rank.ask().mode == "dynamic");
}

TEST_CASE("a message over the bound costs its sender the connection and nobody else") {
  const LoneRank rank;
  const auto stranger = *Bus::ask({kMostBytesDown});
  REQUIRE(stranger->connect(rank.endpoint()));
  stranger->send("", std::string(kMostBytesUp + 1000, 'x'));
  CHECK(rank.ask().mode == "dynamic");
  CHECK(rank.status().warnings.empty());
}

TEST_CASE("dropped messages fill no log") {
  DroppedMessages dropped;
  const auto start = DroppedMessages::Clock::now();
  CHECK(dropped.warning().empty());
  CHECK(dropped.count("a", start) == "1 message from the network dropped; the last: a");
  for (int i = 0; i < 1000; ++i) CHECK_FALSE(dropped.count("b", start + std::chrono::seconds(59)));
  CHECK(dropped.count("c", start + std::chrono::seconds(60)) ==
        "1002 messages from the network dropped; the last: c");
  CHECK(dropped.warning() == "1002 messages from the network dropped; the last: c");
}

TEST_CASE("an endpoint that cannot be had is told in the status and the job goes on without") {
  const auto trouble = [](const std::string& endpoint) {
    AgentOptions options;
    options.endpoint = endpoint;
    options.loopback = InsecureLoopback::allowed;
    const LoneRank rank(options);
    REQUIRE(eventually([&] { return !rank.status().warnings.empty(); }));
    CHECK(rank.status().ranks.size() == 1);
    return rank.status().warnings.front();
  };
  const auto taken =
      *Bus::listen("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", InsecureLoopback::allowed, {1000});
  CHECK(trouble(taken->endpoint()) == "cannot listen on " + taken->endpoint() + ": Address already in use");
  CHECK(trouble("tcp://no-such-host.invalid:5555").rfind("refusing to listen on \"tcp://no-such-host", 0) ==
        0);
  CHECK(trouble("ipc:///tmp/" + std::string(108, 'x')).find("File name too long") != std::string::npos);
  CHECK(trouble("nonsense") == "refusing to listen on \"nonsense\": expected ipc:///PATH or tcp://HOST:PORT");
}

TEST_CASE("a TCP endpoint whose keys are not usable is refused even where loopback without keys is allowed") {
  const TemporaryDirectory scratch;
  const fs::path keys = scratch / "keys";
  const auto trouble = [&] {
    AgentOptions options;
    options.endpoint = "tcp://127.0.0.1:*";
    options.loopback = InsecureLoopback::allowed;
    options.keys = keys;
    const LoneRank rank(options);
    REQUIRE(eventually([&] { return !rank.status().warnings.empty(); }));
    return rank.status().warnings.front();
  };
  const std::string refusing = "refusing to listen on \"tcp://127.0.0.1:*\": " + keys.string();
  CHECK(trouble() == refusing + ": No such file or directory; \"gradmonctl keygen " + keys.string() +
                         "\" makes a directory of keys");
  REQUIRE(make_key_directory(keys));
  fs::permissions(keys / "server.secret", fs::perms(0644));
  CHECK(trouble() == refusing + "/server.secret: others can use it (mode 0644): chmod 600 it");
  fs::permissions(keys / "server.secret", fs::perms(0600));
  write_text(keys / "clients.allow", "# nobody\n");
  CHECK(trouble() == refusing + "/clients.allow: lists no client: nobody could connect");
}

}  // namespace
}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "control/net/bus.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include "control/debian_version.h"
#include "tests/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kSoon{5000};

struct Pair {
  TemporaryDirectory directory;
  std::string endpoint = "ipc://" + (directory / "s").string();
  std::unique_ptr<Bus> listener =
      *Bus::listen(endpoint, endpoint + ".state", InsecureLoopback::refused, {1000});
  std::unique_ptr<Bus> asker = *Bus::ask({100'000});
  Pair() { REQUIRE(asker->connect(endpoint)); }
};

TEST_CASE("a question reaches the listener and its answer comes back") {
  Pair pair;
  REQUIRE(pair.asker->send("", "question"));
  const auto question = pair.listener->poll(kSoon, -1);
  REQUIRE(question);
  REQUIRE(question->bytes == "question");
  REQUIRE(pair.listener->send(question->peer, "answer"));
  REQUIRE(pair.asker->poll(kSoon, -1)->bytes == "answer");
}

TEST_CASE("a message over the bound is not delivered and an honest one still is") {
  Pair pair;
  pair.asker->send("", std::string(50'000, 'x'));
  auto honest = *Bus::ask({1000});
  REQUIRE(honest->connect(pair.endpoint));
  REQUIRE(honest->send("", "honest"));
  REQUIRE(pair.listener->poll(kSoon, -1)->bytes == "honest");
}

TEST_CASE("sending to a peer that has gone says so") {
  Pair pair;
  REQUIRE_FALSE(pair.listener->send("nobody", "x"));
}

TEST_CASE("the socket can be used by its owner alone") {
  Pair pair;
  struct stat status {};
  REQUIRE(stat((pair.directory / "s").c_str(), &status) == 0);
  REQUIRE((status.st_mode & 0077U) == 0);
}

TEST_CASE("every bind but a private socket is refused with the reason") {
  const auto why = [](const std::string& endpoint) {
    return bind_objection(endpoint, InsecureLoopback::refused);
  };
  REQUIRE(why("ipc:///tmp/x").empty());
  REQUIRE(why("tcp://127.0.0.1:5555").find("GRADMON_INSECURE_LOOPBACK=1") != std::string::npos);
  REQUIRE(bind_objection("tcp://127.0.0.1:5555", InsecureLoopback::allowed).empty());
  for (const char* endpoint : {"tcp://0.0.0.0:5555", "tcp://*:5555", "tcp://192.168.1.2:1", "tcp://[::]:1"}) {
    CAPTURE(endpoint);
    REQUIRE(bind_objection(endpoint, InsecureLoopback::allowed).find("keys") != std::string::npos);
  }
  for (const char* endpoint :
       {"", "ipc://relative", "ipc://@abstract", "inproc://x", "udp://127.0.0.1:1", "tcp://"}) {
    CAPTURE(endpoint);
    REQUIRE_FALSE(bind_objection(endpoint, InsecureLoopback::allowed).empty());
  }
}

TEST_CASE("TCP on loopback works where the user has accepted it") {
  auto listener = *Bus::listen("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", InsecureLoopback::allowed, {1000});
  auto asker = *Bus::ask({1000});
  REQUIRE(asker->connect(listener->endpoint()));
  REQUIRE(asker->send("", "hello"));
  REQUIRE(listener->poll(kSoon, -1)->bytes == "hello");
}

TEST_CASE("without descriptors to spare there is no network and no abort") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit scarce{20, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &scarce) == 0);
  const auto bus = Bus::ask({1000});
  setrlimit(RLIMIT_NOFILE, &before);
  REQUIRE_FALSE(bus);
  REQUIRE(bus.error().find("file descriptors") != std::string::npos);
}

TEST_CASE("an endpoint in use is an error and not a crash") {
  Pair pair;
  TemporaryDirectory directory;
  const std::string taken = "tcp://127.0.0.1:*";
  auto first = *Bus::listen(taken, taken, InsecureLoopback::allowed, {1000});
  const auto second = Bus::listen(first->endpoint(), taken, InsecureLoopback::allowed, {1000});
  REQUIRE_FALSE(second);
  REQUIRE(second.error().find("cannot listen on " + first->endpoint()) != std::string::npos);
}

}  // namespace
}  // namespace gradmon

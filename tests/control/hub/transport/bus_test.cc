// SPDX-License-Identifier: Apache-2.0
#include "control/hub/transport/bus.h"

#include <sys/resource.h>
#include <unistd.h>

#include <vector>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kSoon{5000};

struct Pair {
  std::unique_ptr<Bus> listener = *Bus::make_server("tcp://127.0.0.1:*", InsecureLoopback::allowed, {1000});
  std::string endpoint = listener->endpoint();
  std::unique_ptr<Bus> asker = *Bus::make_client({100'000});
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
  auto honest = *Bus::make_client({1000});
  REQUIRE(honest->connect(pair.endpoint));
  REQUIRE(honest->send("", "honest"));
  REQUIRE(pair.listener->poll(kSoon, -1)->bytes == "honest");
}

// As a hub does: polls the descriptors themselves, and takes all there is.
TEST_CASE("who polls the descriptors is woken by every message and loses none") {
  Pair pair;
  int heard = 0;
  for (int sent = 1; sent <= 50; ++sent) {
    REQUIRE(pair.asker->send("", "x"));
    while (heard < sent) {
      std::vector<pollfd> polled{{-1, 0, 0}};
      pair.listener->add_to(polled);
      REQUIRE(polled.size() >= 2);
      REQUIRE(::poll(polled.data(), polled.size(), 5'000) > 0);
      while (pair.listener->poll(milliseconds{0}, -1)) ++heard;
    }
  }
  CHECK(heard == 50);
}

TEST_CASE("a wake-up ends a wait without a message") {
  Pair pair;
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  REQUIRE(write(ends[1], "x", 1) == 1);
  CHECK_FALSE(pair.listener->poll(std::chrono::minutes(1), ends[0]));
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("sending to a peer that has gone says so") {
  Pair pair;
  REQUIRE_FALSE(pair.listener->send("nobody", "x"));
}

TEST_CASE("every bind without keys is refused with the reason, but where the user has accepted it") {
  const auto why = [](const std::string& endpoint) {
    return bind_objection(endpoint, InsecureLoopback::refused);
  };
  REQUIRE(why("tcp://127.0.0.1:5555").find("GRADMON_INSECURE_LOOPBACK=1") != std::string::npos);
  REQUIRE(bind_objection("tcp://127.0.0.1:5555", InsecureLoopback::allowed).empty());
  for (const char* endpoint : {"tcp://0.0.0.0:5555", "tcp://*:5555", "tcp://192.168.1.2:1", "tcp://[::]:1"}) {
    CAPTURE(endpoint);
    REQUIRE(bind_objection(endpoint, InsecureLoopback::allowed).find("keys") != std::string::npos);
  }
  for (const char* endpoint :
       {"", "ipc:///tmp/x", "ipc://@abstract", "inproc://x", "udp://127.0.0.1:1", "tcp://"}) {
    CAPTURE(endpoint);
    REQUIRE_FALSE(bind_objection(endpoint, InsecureLoopback::allowed).empty());
  }
}

TEST_CASE("without descriptors to spare there is no network and no abort") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit scarce{20, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &scarce) == 0);
  const auto bus = Bus::make_client({1000});
  setrlimit(RLIMIT_NOFILE, &before);
  REQUIRE_FALSE(bus);
  REQUIRE(bus.error().find("file descriptors") != std::string::npos);
}

TEST_CASE("an endpoint in use is an error and not a crash") {
  auto first = *Bus::make_server("tcp://127.0.0.1:*", InsecureLoopback::allowed, {1000});
  const auto second = Bus::make_server(first->endpoint(), InsecureLoopback::allowed, {1000});
  REQUIRE_FALSE(second);
  REQUIRE(second.error().find("cannot listen on " + first->endpoint()) != std::string::npos);
}

}  // namespace
}  // namespace gradmon

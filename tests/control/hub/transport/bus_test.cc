// SPDX-License-Identifier: Apache-2.0
#include "control/hub/transport/bus.h"

#include <unistd.h>

#include <vector>

#include "control/debian_version.h"
#include "tests/control/host/resource_limit.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kSoon{60'000};

struct ConnectedBuses {
  std::unique_ptr<Bus> listener = *Bus::make_server("tcp://127.0.0.1:*", InsecureLoopback::allowed, {1000});
  std::string endpoint = listener->endpoint();
  std::unique_ptr<Bus> asker = *Bus::make_client({100'000});
  ConnectedBuses() { REQUIRE(asker->connect(endpoint)); }
};

TEST_CASE("a question reaches the listener and its answer comes back") {
  ConnectedBuses buses;
  REQUIRE(buses.asker->send("", "question"));
  const auto question = buses.listener->poll(kSoon, -1);
  REQUIRE(question);
  REQUIRE(question->bytes == "question");
  REQUIRE(buses.listener->send(question->peer, "answer"));
  REQUIRE(buses.asker->poll(kSoon, -1)->bytes == "answer");
}

TEST_CASE("a message over the size limit is not delivered and a shorter one still is") {
  ConnectedBuses buses;
  REQUIRE(buses.asker->send("", "short"));
  REQUIRE(buses.listener->poll(kSoon, -1)->bytes == "short");  // connected: the next one would arrive first
  REQUIRE(buses.asker->send("", std::string(50'000, 'x')));
  auto honest = *Bus::make_client({1000});
  REQUIRE(honest->connect(buses.endpoint));
  REQUIRE(honest->send("", "honest"));
  REQUIRE(buses.listener->poll(kSoon, -1)->bytes == "honest");
  CHECK_FALSE(buses.listener->poll(milliseconds(200), -1));
}

// Like a hub: polls the descriptors itself, and takes all messages.
TEST_CASE("polling the descriptors reports every message and loses none") {
  ConnectedBuses buses;
  int heard = 0;
  for (int sent = 1; sent <= 50; ++sent) {
    REQUIRE(buses.asker->send("", "x"));
    while (heard < sent) {
      std::vector<pollfd> polled{{-1, 0, 0}};
      buses.listener->add_to(polled);
      REQUIRE(polled.size() >= 2);
      REQUIRE(::poll(polled.data(), polled.size(), 5'000) > 0);
      while (buses.listener->poll(milliseconds{0}, -1)) ++heard;
    }
  }
  CHECK(heard == 50);
}

TEST_CASE("a wake-up ends a wait without a message") {
  ConnectedBuses buses;
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  REQUIRE(write(ends[1], "x", 1) == 1);
  CHECK_FALSE(buses.listener->poll(std::chrono::minutes(1), ends[0]));
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("sending to an unknown peer fails") {
  ConnectedBuses buses;
  REQUIRE_FALSE(buses.listener->send("nobody", "x"));
}

TEST_CASE("a bind without keys is refused unless it is on loopback and the user allows it") {
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

TEST_CASE("too few free descriptors are an error and not an abort") {
  const auto bus = [] {
    const DescriptorLimit scarce(20);
    return Bus::make_client({1000});
  }();
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

// SPDX-License-Identifier: Apache-2.0
// The lead hub's TCP endpoint, in a whole hub, if it cannot be bound.
#include "control/hub/lead.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

#include "control/files/descriptor.h"
#include "control/hub/transport/rendezvous.h"
#include "tests/control/hub/hub_process.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

// A loopback port that is in use until `socket` is closed.
struct PortInUse {
  Descriptor socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::string endpoint;

  PortInUse() {
    sockaddr_in address{AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {}};
    socklen_t size = sizeof address;
    REQUIRE(bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(listen(socket.get(), 1) == 0);
    REQUIRE(getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    endpoint = "tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
};

TEST_CASE("a port in use is tried again until it is free and the status warns of it until then") {
  const JobPlace place;
  const HubProcess hub(place);
  PortInUse port;
  HubPeer rank(place), client(place);
  CHECK(rank.join(place, 0, 1, port.endpoint).refused.empty());
  const std::string trouble = "cannot listen on " + port.endpoint + ": Address already in use";
  const auto status_warns = [&] {
    const std::vector<std::string> lines = client.status().warnings;
    return std::count(lines.begin(), lines.end(), trouble) == 1;
  };
  CHECK(status_warns());
  port.socket.reset();
  REQUIRE(eventually([&] {
    const auto entry = find_entry(place.output(), "launch");
    return entry && entry->address == port.endpoint;
  }));
  CHECK_FALSE(status_warns());
}

TEST_CASE("an endpoint that cannot be bound is a warning in the status and the job runs without it") {
  const auto trouble = [](const std::string& endpoint) {
    const JobPlace place;
    const HubProcess hub(place);
    HubPeer rank(place), client(place);
    CHECK(rank.join(place, 0, 1, endpoint).refused.empty());
    const Status status = client.status();
    return status.warnings.empty() ? "" : status.warnings.front();
  };
  const PortInUse taken;
  CHECK(trouble(taken.endpoint) == "cannot listen on " + taken.endpoint + ": Address already in use");
  CHECK(trouble("tcp://no-such-host.invalid:5555").rfind("cannot listen on tcp://no-such-host", 0) == 0);
  CHECK(trouble("tcp://").find("expected tcp://HOST:PORT") != std::string::npos);
}

TEST_CASE("dropped messages are logged at most once a minute") {
  DroppedMessages dropped;
  const auto start = DroppedMessages::Clock::now();
  CHECK(dropped.warning().empty());
  CHECK(dropped.count("a", start) == "1 message from the network dropped; the last: a");
  for (int i = 0; i < 1000; ++i) CHECK_FALSE(dropped.count("b", start + std::chrono::seconds(59)));
  CHECK(dropped.count("c", start + std::chrono::seconds(60)) ==
        "1002 messages from the network dropped; the last: c");
  CHECK(dropped.warning() == "1002 messages from the network dropped; the last: c");
}

}  // namespace
}  // namespace gradmon

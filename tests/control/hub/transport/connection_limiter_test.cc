// SPDX-License-Identifier: Apache-2.0
#include "control/hub/transport/connection_limiter.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

struct Listener {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};

  Listener() {
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(bind(fd, any, size) == 0);
    REQUIRE(getsockname(fd, any, &size) == 0);
    REQUIRE(listen(fd, 10) == 0);
  }
  ~Listener() { close(fd); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
};

struct Client {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

  explicit Client(const Listener& to) {
    const auto* address = reinterpret_cast<const sockaddr*>(&to.address);
    const int connected = connect(fd, address, sizeof to.address);
    REQUIRE((connected == 0 || errno == EINPROGRESS));
  }
  ~Client() { close(fd); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool inside() const {
    pollfd ready{fd, POLLOUT, 0};
    return poll(&ready, 1, 0) == 1 && (ready.revents & (POLLERR | POLLHUP)) == 0;
  }
};

TEST_CASE("past its bound the door lets nobody in and those inside notice nothing") {
  const Listener listener;
  ConnectionLimiter door(2);
  door.listens(listener.fd);
  const Client first(listener);
  REQUIRE(eventually([&] { return first.inside(); }));
  door.came();
  CHECK_FALSE(door.closed());
  door.came();
  CHECK(door.closed());
  const Client late(listener);
  CHECK_FALSE(late.inside());
  CHECK(first.inside());
  CHECK(send(first.fd, "x", 1, MSG_NOSIGNAL) == 1);
  door.went();
  CHECK_FALSE(door.closed());
  CHECK(eventually([&] { return late.inside(); }));  // The kernel knocks again after a second.
}

TEST_CASE("the door does not flap at its bound") {
  ConnectionLimiter door(100);
  for (int i = 0; i < 100; ++i) door.came();
  CHECK(door.closed());
  for (int i = 0; i < 12; ++i) door.went();
  CHECK(door.closed());
  door.went();
  CHECK_FALSE(door.closed());
  CHECK(door.inside() == 87);
  for (int i = 0; i < 12; ++i) door.came();
  CHECK_FALSE(door.closed());
  door.came();
  CHECK(door.closed());
}

}  // namespace
}  // namespace gradmon

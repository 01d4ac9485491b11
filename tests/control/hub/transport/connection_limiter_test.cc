// SPDX-License-Identifier: Apache-2.0
#include "control/hub/transport/connection_limiter.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control/debian_version.h"
#include "control/files/descriptor.h"
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

  bool connected() const {
    pollfd ready{fd, POLLOUT, 0};
    return poll(&ready, 1, 0) == 1 && (ready.revents & (POLLERR | POLLHUP)) == 0;
  }
};

TEST_CASE("at its limit the limiter blocks new connections and keeps the open ones") {
  const Listener listener;
  ConnectionLimiter limiter(2);
  limiter.add_listener(listener.fd);
  const Client first(listener);
  REQUIRE(eventually([&] { return first.connected(); }));
  const Descriptor accepted(accept(listener.fd, nullptr, nullptr));
  REQUIRE(accepted.valid());
  limiter.on_accept();
  CHECK_FALSE(limiter.closed());
  limiter.on_accept();
  CHECK(limiter.closed());
  const Client late(listener);
  CHECK_FALSE(late.connected());
  CHECK(first.connected());
  CHECK(send(first.fd, "x", 1, MSG_NOSIGNAL) == 1);
  char received = 0;
  CHECK(eventually([&] { return recv(accepted.get(), &received, 1, MSG_DONTWAIT) == 1; }));
  limiter.on_close();
  CHECK_FALSE(limiter.closed());
  CHECK(eventually([&] { return late.connected(); }));  // The kernel tries again after a second.
}

TEST_CASE("the limiter opens again only when an eighth of the connections has gone") {
  ConnectionLimiter limiter(100);
  for (int i = 0; i < 100; ++i) limiter.on_accept();
  CHECK(limiter.closed());
  for (int i = 0; i < 12; ++i) limiter.on_close();
  CHECK(limiter.closed());
  limiter.on_close();
  CHECK_FALSE(limiter.closed());
  CHECK(limiter.active_connections() == 87);
  for (int i = 0; i < 12; ++i) limiter.on_accept();
  CHECK_FALSE(limiter.closed());
  limiter.on_accept();
  CHECK(limiter.closed());
}

}  // namespace
}  // namespace gradmon

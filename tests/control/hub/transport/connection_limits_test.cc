// SPDX-License-Identifier: Apache-2.0
#include "control/hub/transport/connection_limits.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "control/files/descriptor.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

struct Listener {
  const Descriptor socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const int fd = socket.get();
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
};

struct Client {
  const Descriptor socket{::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  const int fd = socket.get();

  explicit Client(const Listener& to) {
    const auto* address = reinterpret_cast<const sockaddr*>(&to.address);
    const int connected = connect(fd, address, sizeof to.address);
    REQUIRE((connected == 0 || errno == EINPROGRESS));
  }

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

using Clock = ConnectionMeter::Clock;
using std::chrono::milliseconds;

// Two ends of one TCP connection over loopback.
struct TcpPair {
  Descriptor hub;
  Descriptor client{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};

  TcpPair() {
    const Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* any = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof address;
    REQUIRE(bind(listener.get(), any, size) == 0);
    REQUIRE(getsockname(listener.get(), any, &size) == 0);
    REQUIRE(listen(listener.get(), 1) == 0);
    REQUIRE(connect(client.get(), any, size) == 0);
    hub.reset(accept(listener.get(), nullptr, nullptr));
    REQUIRE(hub.valid());
  }

  static void carry(int from, int to, std::size_t bytes) {
    std::string text(bytes, 'x');
    REQUIRE(send(from, text.data(), bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes));
    for (std::size_t got = 0; got < bytes;) {
      const ssize_t n = recv(to, text.data(), bytes - got, 0);
      REQUIRE(n > 0);
      got += static_cast<std::size_t>(n);
    }
  }
  void to_hub(std::size_t bytes) const { carry(client.get(), hub.get(), bytes); }
  void to_client(std::size_t bytes) const { carry(hub.get(), client.get(), bytes); }
  bool cut() const {
    char c = 0;
    return recv(client.get(), &c, 1, MSG_DONTWAIT) == 0;
  }
};

ConnectionMeter::Limits limits(bool keys = false) {
  ConnectionMeter::Limits limits;
  limits.most_in = 10'000;
  limits.most_out = 10'000;
  limits.keys = keys;
  limits.messages = {10, 3};
  return limits;
}

TEST_CASE("received bytes are bounded until they are handed out as messages") {
  const TcpPair pair;
  ConnectionMeter meter(limits());
  Clock::time_point now{std::chrono::hours(1)};
  const auto check = [&] { meter.check(now += milliseconds(100)); };
  meter.on_accept(pair.hub.get(), now);
  check();
  for (int i = 0; i < 5; ++i) {
    pair.to_hub(5'000);
    CHECK(meter.received(pair.hub.get(), "a", 1, 5'000, now += milliseconds(200)));
    check();
  }
  CHECK_FALSE(pair.cut());
  pair.to_hub(12'000);
  check();
  CHECK(eventually([&] { return pair.cut(); }));
}

TEST_CASE("a peer that is not admitted may send only a handshake") {
  const TcpPair not_admitted;
  const TcpPair admitted;
  ConnectionMeter meter(limits(true));
  Clock::time_point now{std::chrono::hours(1)};
  meter.on_accept(not_admitted.hub.get(), now);
  meter.on_accept(admitted.hub.get(), now);
  CHECK(meter.interval() == milliseconds(10));
  admitted.to_client(301);  // The handshake of an admitted peer: 64 + 170 + 67 bytes.
  not_admitted.to_hub(5'000);
  admitted.to_hub(5'000);
  meter.check(now += milliseconds(100));
  meter.check(now += milliseconds(100));
  CHECK(eventually([&] { return not_admitted.cut(); }));
  CHECK_FALSE(admitted.cut());
}

TEST_CASE("a peer that does not read is cut off, and one that reads is not") {
  const TcpPair pair;
  ConnectionMeter meter(limits());
  const Clock::time_point now{std::chrono::hours(1)};
  meter.on_accept(pair.hub.get(), now);
  CHECK(meter.received(pair.hub.get(), "a", 1, 1, now));
  for (int i = 0; i < 5; ++i) {
    CHECK(meter.may_send("a", 8'000));
    pair.to_client(8'000);
  }
  CHECK(meter.may_send("a", 8'000));
  CHECK_FALSE(meter.may_send("a", 8'000));
  CHECK_FALSE(meter.may_send("a", 1));
  CHECK(eventually([&] { return pair.cut(); }));
  CHECK(meter.may_send("another", 8'000));
}

TEST_CASE("a peer that sends too many messages a second is cut off") {
  const TcpPair pair;
  ConnectionMeter meter(limits());
  Clock::time_point now{std::chrono::hours(1)};
  meter.on_accept(pair.hub.get(), now);
  for (int i = 0; i < 10; ++i) CHECK(meter.received(pair.hub.get(), "a", 1, 1, now += milliseconds(100)));
  CHECK_FALSE(pair.cut());
  for (int i = 0; i < 3; ++i) static_cast<void>(meter.received(pair.hub.get(), "a", 1, 1, now));
  CHECK_FALSE(meter.received(pair.hub.get(), "a", 1, 1, now));
  CHECK(eventually([&] { return pair.cut(); }));
  meter.on_close(pair.hub.get());
  CHECK(meter.interval() == milliseconds(0));
}

}  // namespace
}  // namespace gradmon

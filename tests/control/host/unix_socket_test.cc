// SPDX-License-Identifier: Apache-2.0
#include "control/host/frame_stream.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <vector>

#include "control/files/descriptor.h"
#include "tests/control/host/file_mode.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

using namespace gradmon;

namespace {

Descriptor listening(const std::filesystem::path& path, int backlog = 8) {
  const auto bound = bind_unix(path);
  INFO((bound ? "" : bound.error()));
  REQUIRE(bound);
  Descriptor socket(*bound);
  REQUIRE(::listen(socket.get(), backlog) == 0);
  return socket;
}

}  // namespace

TEST_CASE("a bound socket has mode 0600 whatever the umask") {
  const TemporaryDirectory directory;
  for (const mode_t mask : {0000U, 0022U, 0277U, 0777U}) {
    const auto path = directory / ("socket-" + std::to_string(mask));
    const mode_t before = umask(mask);
    const auto bound = bind_unix(path);
    umask(before);
    REQUIRE(bound);
    const Descriptor owned(*bound);
    CHECK(mode_of(path) == 0600);
  }
}

TEST_CASE("a connection is non-blocking and close-on-exec and gives the peer's user id") {
  const TemporaryDirectory directory;
  const Descriptor server = listening(directory / "socket");
  const auto connected = connect_unix(directory / "socket");
  REQUIRE(connected);
  const Descriptor client(*connected);
  const Descriptor accepted(accept(server.get(), nullptr, nullptr));
  CHECK((fcntl(client.get(), F_GETFL) & O_NONBLOCK) != 0);
  CHECK((fcntl(client.get(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(peer_uid(accepted.get()).value() == geteuid());
  CHECK(peer_uid(client.get()).value() == geteuid());
  CHECK_FALSE(peer_uid(-1));
}

TEST_CASE("a path longer than a socket address can be bound and connected to") {
  const TemporaryDirectory directory;
  const auto deep = directory / std::string(200, 'd');
  std::filesystem::create_directory(deep);
  const Descriptor server = listening(deep / "socket");
  CHECK(mode_of(deep / "socket") == 0600);
  const auto connected = connect_unix(deep / "socket");
  REQUIRE(connected);
  const Descriptor client(*connected);
  CHECK(Descriptor(accept(server.get(), nullptr, nullptr)).valid());

  const auto too_long = connect_unix(deep / std::string(100, 's'));
  REQUIRE_FALSE(too_long);
  CHECK(too_long.error().find("file name has 100 bytes; at most about 80 fit") != std::string::npos);
}

TEST_CASE("a path of exactly 107 bytes can be bound and connected to") {
  const TemporaryDirectory directory;
  const std::string name(107 - directory.path().string().size() - 1, 's');
  const Descriptor server = listening(directory / name);
  const auto connected = connect_unix(directory / name);
  REQUIRE(connected);
  const Descriptor client(*connected);
}

TEST_CASE("a failed connect or bind names the path and the cause") {
  const TemporaryDirectory directory;
  const auto missing = connect_unix(directory / "socket");
  REQUIRE_FALSE(missing);
  CHECK(missing.error() == (directory / "socket").string() + ": No such file or directory");
  { const Descriptor gone = listening(directory / "socket"); }
  const auto refused = connect_unix(directory / "socket");
  REQUIRE_FALSE(refused);
  CHECK(refused.error() == (directory / "socket").string() + ": Connection refused");
  const auto taken = bind_unix(directory / "socket");
  REQUIRE_FALSE(taken);
  CHECK(taken.error() == (directory / "socket").string() + ": Address already in use");
  CHECK_FALSE(connect_unix(""));
}

TEST_CASE("connecting to a server that does not accept never waits") {
  const TemporaryDirectory directory;
  const Descriptor server = listening(directory / "socket", 1);
  std::vector<Descriptor> clients;
  for (int i = 0; i < 10; ++i) {
    const auto connected = connect_unix(directory / "socket");
    if (!connected) {
      CHECK(connected.error().find("the listen queue is full") != std::string::npos);
      return;
    }
    clients.emplace_back(*connected);
  }
  FAIL("ten connections fit into a queue of one");
}

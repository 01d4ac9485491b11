// SPDX-License-Identifier: Apache-2.0
#include "control/hub/transport/unix_listener.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

#include "control/host/unix_socket.h"
#include "tests/control/host/file_mode.h"
#include "tests/control/host/resource_limit.h"
#include "tests/support/temporary_directory.h"

using namespace gradmon;

namespace {

namespace fs = std::filesystem;
using Kind = UnixListener::Accepted::Kind;

Descriptor connected(const fs::path& path) {
  const auto socket = connect_unix(path);
  INFO((socket ? "" : socket.error()));
  REQUIRE(socket);
  return Descriptor(*socket);
}

bool ended(const Descriptor& client) {
  char byte = 0;
  return ::recv(client.get(), &byte, 1, MSG_DONTWAIT) == 0;
}

}  // namespace

TEST_CASE("a listener binds with mode 0600 and accepts its own user and removes its path at its end") {
  const TemporaryDirectory directory;
  {
    auto listener = UnixListener::listen(directory / "hub.sock");
    REQUIRE(listener);
    CHECK(mode_of(directory / "hub.sock") == 0600);
    CHECK(listener->accept().kind == Kind::nobody);
    const Descriptor client = connected(directory / "hub.sock");
    CHECK(listener->accept().kind == Kind::peer);
    CHECK(listener->accept().kind == Kind::nobody);
  }
  CHECK_FALSE(fs::exists(directory / "hub.sock"));
}

TEST_CASE("an earlier hub's socket is replaced and any other file is kept and named in the error") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "hub.sock";
  { const Descriptor left_behind(bind_unix(path).value()); }
  REQUIRE(fs::exists(path));
  { CHECK(UnixListener::listen(path)); }
  write_text(path, "a file");
  CHECK(UnixListener::listen(path).error() == path.string() + ": not a socket, expected one or nothing");
  CHECK(read_text(path) == "a file");
  fs::remove(path);
  fs::create_symlink("elsewhere", path);
  CHECK_FALSE(UnixListener::listen(path));
  CHECK(fs::is_symlink(path));
  fs::remove(path);
  CHECK(UnixListener::listen(directory / "missing" / "hub.sock").error() ==
        (directory / "missing" / "hub.sock").string() + ": No such file or directory");
  if (geteuid() != 0) {
    WARN("skipped: only root can make another user's socket");
    return;
  }
  { const Descriptor planted(bind_unix(path).value()); }
  REQUIRE(chown(path.c_str(), 12'345, 0) == 0);
  CHECK(UnixListener::listen(path).error() ==
        path.string() + ": belongs to uid 12345, expected uid 0, who runs this");
}

TEST_CASE("a listener does not remove a path that another hub has taken") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "hub.sock";
  auto first = std::make_unique<UnixListener>(UnixListener::listen(path).value());
  CHECK(first->at_path());
  const auto second = UnixListener::listen(path);
  REQUIRE(second);
  CHECK_FALSE(first->at_path());
  CHECK_FALSE(first->bind_again());
  first.reset();
  CHECK(second->at_path());
  const Descriptor client = connected(path);
}

TEST_CASE("another user is refused even if the socket's mode admits everybody") {
  if (geteuid() != 0) {
    WARN("skipped: needs root to become another user");
    return;
  }
  const TemporaryDirectory directory;
  const fs::path path = directory / "hub.sock";
  auto listener = UnixListener::listen(path);
  REQUIRE(listener);
  REQUIRE(chmod(directory.path().c_str(), 0755) == 0);
  REQUIRE(chmod(path.c_str(), 0666) == 0);
  const pid_t other = fork();
  if (other == 0) {
    if (setgid(65'534) != 0 || setuid(65'534) != 0) _exit(2);
    const auto socket = connect_unix(path);
    _exit(socket ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(other, &status, 0) == other);
  REQUIRE(status == 0);
  const auto accepted = listener->accept();
  CHECK(accepted.kind == Kind::refused);
  CHECK(accepted.reason == "uid 65534 is neither this user nor root");
}

TEST_CASE("without free descriptors a client is refused at once and later clients are accepted") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "hub.sock";
  auto listener = UnixListener::listen(path);
  REQUIRE(listener);
  const Descriptor before = connected(path);
  const Descriptor also_before = connected(path);
  UnixListener::Accepted first;
  UnixListener::Accepted second;
  {
    // Under a limit of 3 even the number of the spare descriptor is too high.
    const DescriptorLimit limit(3);
    first = listener->accept();
    second = listener->accept();
  }
  CHECK(first.kind == Kind::stuck);
  CHECK(second.kind == Kind::stuck);
  CHECK(first.reason == "no descriptor is left: Too many open files");
  CHECK(listener->accept().kind == Kind::peer);
  CHECK(listener->accept().kind == Kind::peer);
  CHECK(listener->accept().kind == Kind::nobody);

  // If all numbers below the limit are in use, the number of the spare descriptor can be used.
  const Descriptor third = connected(path);
  UnixListener::Accepted turned_away;
  UnixListener::Accepted nobody;
  {
    const DescriptorLimit few(64);
    std::vector<Descriptor> taken;
    for (int fd = dup(0); fd >= 0; fd = dup(0)) taken.emplace_back(fd);
    turned_away = listener->accept();
    nobody = listener->accept();
  }
  CHECK(turned_away.kind == Kind::refused);
  CHECK(nobody.kind == Kind::nobody);
  CHECK(ended(third));
  const Descriptor fourth = connected(path);
  CHECK(listener->accept().kind == Kind::peer);
}

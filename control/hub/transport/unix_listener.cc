// SPDX-License-Identifier: Apache-2.0
#include "control/hub/transport/unix_listener.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "control/host/unix_socket.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using Problem = tl::unexpected<std::string>;
using Kind = UnixListener::Accepted::Kind;

Problem problem(const fs::path& path, int code) {
  return Problem(path.string() + ": " + std::generic_category().message(code));
}

// Removes the socket that an earlier hub left.
tl::expected<void, std::string> remove_socket(const fs::path& path) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) {
    if (errno == ENOENT) return {};
    return problem(path, errno);
  }
  if (!S_ISSOCK(found.st_mode)) return Problem(path.string() + ": not a socket, expected one or nothing");
  if (found.st_uid != geteuid()) {
    return Problem(path.string() + ": belongs to uid " + std::to_string(found.st_uid) + ", expected uid " +
                   std::to_string(geteuid()) + ", who runs this");
  }
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return problem(path, errno);
  return {};
}

}  // namespace

tl::expected<UnixListener, std::string> UnixListener::listen(fs::path path) {
  UnixListener listener(std::move(path));
  if (const auto removed = remove_socket(listener.path_); !removed) return Problem(removed.error());
  if (const auto bound = listener.bind_again(); !bound) return Problem(bound.error());
  listener.open_spare();
  return listener;
}

UnixListener::~UnixListener() {
  if (socket_.valid() && at_path()) ::unlink(path_.c_str());
}

tl::expected<void, std::string> UnixListener::bind_again() {
  const auto bound = bind_unix(path_);
  if (!bound) return Problem(bound.error());
  Descriptor socket(*bound);
  struct stat made {};
  if (::listen(socket.get(), SOMAXCONN) != 0 || ::lstat(path_.c_str(), &made) != 0) {
    const int code = errno;
    ::unlink(path_.c_str());
    return problem(path_, code);
  }
  device_ = made.st_dev;
  inode_ = made.st_ino;
  socket_ = std::move(socket);
  return {};
}

bool UnixListener::at_path() const {
  struct stat found {};
  return ::lstat(path_.c_str(), &found) == 0 && found.st_dev == device_ && found.st_ino == inode_;
}

void UnixListener::open_spare() {
  if (!spare_.valid()) spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

UnixListener::Accepted UnixListener::accept() {
  open_spare();
  Descriptor socket;
  do {
    socket.reset(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  } while (!socket.valid() && (errno == EINTR || errno == ECONNABORTED));
  if (!socket.valid()) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return {};
    if (errno == EMFILE || errno == ENFILE) return turn_away();
    return {Kind::stuck, {}, "cannot accept: " + std::generic_category().message(errno)};
  }
  const auto uid = peer_uid(socket.get());
  if (!uid) return {Kind::refused, {}, uid.error()};
  if (*uid != geteuid() && *uid != 0)
    return {Kind::refused, {}, "uid " + std::to_string(*uid) + " is neither this user nor root"};
  return {Kind::peer, std::move(socket), ""};
}

UnixListener::Accepted UnixListener::turn_away() {
  const std::string reason = "no descriptor is left: " + std::generic_category().message(errno);
  spare_.reset();
  const bool accepted = Descriptor(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC)).valid();
  // accept4() fails with EMFILE even if no connection waits.
  const bool empty = !accepted && (errno == EAGAIN || errno == EWOULDBLOCK);
  open_spare();
  if (empty) return {};
  return {accepted ? Kind::refused : Kind::stuck, {}, reason};
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/link_proxy.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <vector>

namespace gradmon {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMostHeld = 1 << 20;
constexpr milliseconds kSlice{50};

sockaddr_un address_of(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.string().size() >= sizeof address.sun_path) throw std::runtime_error("too long: " + path.string());
  path.string().copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

int unix_socket() { return socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); }

int listen_at(const std::filesystem::path& path) {
  const int fd = unix_socket();
  const sockaddr_un address = address_of(path);
  unlink(path.c_str());
  if (fd < 0 || bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(fd, 64) != 0) {
    throw std::runtime_error("cannot listen at " + path.string());
  }
  return fd;
}

// -1: nobody listens there.
int connect_to(const std::filesystem::path& path) {
  const int fd = unix_socket();
  const sockaddr_un address = address_of(path);
  if (fd >= 0 && connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

LinkProxy::LinkProxy(std::filesystem::path upstream, int world_size) : upstream_(std::move(upstream)) {
  for (int rank = 1; rank < world_size; ++rank) links_[rank].listener = listen_at(path_of(rank));
  thread_ = std::thread([this] { run(); });
}

LinkProxy::~LinkProxy() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.wake();
  thread_.join();
  for (auto& [rank, link] : links_) {
    for (Connection& connection : link.connections) connection.broken = true;
    close_broken(link);
    close(link.listener);
    unlink(path_of(rank).c_str());
  }
}

std::filesystem::path LinkProxy::path_of(int rank) const {
  return upstream_.string() + ".link" + std::to_string(rank);
}

std::string LinkProxy::endpoint(int rank) const { return "ipc://" + path_of(rank).string(); }

void LinkProxy::set(int rank, LinkFaults faults) {
  const std::lock_guard lock(mutex_);
  links_.at(rank).faults = faults;
  wake_.wake();
}

void LinkProxy::set_all(LinkFaults faults) {
  const std::lock_guard lock(mutex_);
  for (auto& [rank, link] : links_) link.faults = faults;
  wake_.wake();
}

void LinkProxy::drop(int rank) {
  const std::lock_guard lock(mutex_);
  for (Connection& connection : links_.at(rank).connections) connection.broken = true;
  wake_.wake();
}

void LinkProxy::run() {
  const std::lock_guard lock(mutex_);
  while (!stopping_) pass_once();
}

void LinkProxy::pass_once() {
  std::vector<pollfd> fds{{wake_.fd(), POLLIN, 0}};
  auto wait = kSlice;
  const auto now = Clock::now();
  const auto watch = [&](const Stream& stream, bool cut) {
    if (cut) return;
    if (stream.held < kMostHeld) fds.push_back({stream.from, POLLIN, 0});
    if (stream.pieces.empty()) return;
    if (stream.blocked) fds.push_back({stream.to, POLLOUT, 0});
    const auto left = std::chrono::ceil<milliseconds>(stream.pieces.front().due - now);
    if (!stream.blocked) wait = std::clamp(left, milliseconds{0}, wait);
  };
  for (auto& [rank, link] : links_) {
    close_broken(link);
    fds.push_back({link.listener, POLLIN, 0});
    for (const Connection& connection : link.connections) {
      watch(connection.up, link.faults.cut_up);
      watch(connection.down, link.faults.cut_down);
    }
  }
  mutex_.unlock();
  poll(fds.data(), fds.size(), static_cast<int>(wait.count()));
  mutex_.lock();
  wake_.clear();
  for (auto& [rank, link] : links_) {
    accept_into(link);
    for (Connection& connection : link.connections) {
      if (!link.faults.cut_up) {
        read_into(connection.up, link.faults, connection.broken);
        deliver(connection.up, Clock::now(), connection.broken);
      }
      if (!link.faults.cut_down) {
        read_into(connection.down, link.faults, connection.broken);
        deliver(connection.down, Clock::now(), connection.broken);
      }
    }
  }
}

void LinkProxy::accept_into(Link& link) {
  for (int from = accept4(link.listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); from >= 0;
       from = accept4(link.listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)) {
    const int to = connect_to(upstream_);
    if (to < 0) {
      close(from);
      continue;
    }
    Connection connection;
    connection.up = {from, to, {}, 0, false};
    connection.down = {to, from, {}, 0, false};
    link.connections.push_back(std::move(connection));
  }
}

void LinkProxy::read_into(Stream& stream, const LinkFaults& faults, bool& broken) {
  while (!broken && stream.held < kMostHeld) {
    char bytes[65536];
    const ssize_t n = recv(stream.from, bytes, sizeof bytes, 0);
    if (n < 0 && would_block()) return;
    if (n <= 0) {
      broken = true;
      return;
    }
    const milliseconds delay(std::uniform_int_distribution<std::int64_t>(
        faults.least_delay.count(), std::max(faults.least_delay, faults.most_delay).count())(random_));
    auto due = Clock::now() + delay;
    if (!stream.pieces.empty()) due = std::max(due, stream.pieces.back().due);
    stream.pieces.push_back({due, std::string(bytes, static_cast<std::size_t>(n))});
    stream.held += static_cast<std::size_t>(n);
  }
}

void LinkProxy::deliver(Stream& stream, Clock::time_point now, bool& broken) {
  stream.blocked = false;
  while (!broken && !stream.pieces.empty() && stream.pieces.front().due <= now) {
    std::string& bytes = stream.pieces.front().bytes;
    const ssize_t n = send(stream.to, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0) {
      stream.blocked = would_block();
      broken = !stream.blocked;
      return;
    }
    stream.held -= static_cast<std::size_t>(n);
    bytes.erase(0, static_cast<std::size_t>(n));
    if (bytes.empty()) stream.pieces.pop_front();
  }
}

void LinkProxy::close_broken(Link& link) {
  link.connections.remove_if([](const Connection& connection) {
    if (!connection.broken) return false;
    close(connection.up.from);
    close(connection.up.to);
    return true;
  });
}

}  // namespace gradmon

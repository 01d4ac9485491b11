// SPDX-License-Identifier: Apache-2.0
#include "control/hub/transport/connection_limits.h"

#include <dirent.h>
#include <linux/filter.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "control/log.h"

namespace gradmon {
namespace {

// A packet filter that accepts no packet: the kernel then drops requests to connect.
void block_connections(int fd) {
  sock_filter nothing[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
  const sock_fprog program{1, nothing};
  setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

void unblock_connections(int fd) {
  int unused = 0;
  setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof unused);
}

constexpr std::chrono::milliseconds kCheckInterval{50};
constexpr std::chrono::milliseconds kForeignCheckInterval{10};
constexpr std::chrono::milliseconds kStoodStill{500};
constexpr std::uint64_t kFrameHeader = 9;     // most bytes (ZMTP 3.0)
constexpr std::uint64_t kSealed = 33;         // bytes that CURVE adds to a message
constexpr std::uint64_t kHandshakeIn = 4096;  // bytes; a client's handshake is shorter
// A peer that has acknowledged so many bytes is admitted: the server sends 64 + 170 bytes, or a refusal, to
// any peer, and its READY command of 67 bytes only to an admitted one.
constexpr std::uint64_t kHandshakeOut = 280;

struct Counts {
  std::uint64_t received;
  std::uint64_t acknowledged;
};

std::optional<Counts> read_counts(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  if (size < offsetof(tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received) return {};
  return Counts{info.tcpi_bytes_received, info.tcpi_bytes_acked};
}

// False if the number now belongs to another file, for example to a rank's Unix stream.
bool is_of_the_network(int fd) {
  int domain = 0;
  socklen_t size = sizeof domain;
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 &&
         (domain == AF_INET || domain == AF_INET6);
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  if (DIR* fds = opendir("/proc/self/fd")) {
    while (readdir(fds) != nullptr) ++count;
    closedir(fds);
  }
  return count;
}

std::size_t most_descriptors() {
  rlimit limit{};
  const bool unlimited = getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY;
  return unlimited ? std::numeric_limits<std::size_t>::max() : limit.rlim_cur;
}

}  // namespace

void ConnectionLimiter::add_listener(int fd) { fds_.push_back(fd); }

void ConnectionLimiter::on_accept() {
  active_connections_ += 1;
  update();
}

void ConnectionLimiter::on_close() {
  if (active_connections_ > 0) active_connections_ -= 1;
  update();
}

void ConnectionLimiter::update() {
  const std::size_t reopen_below = most_ - most_ / 8;
  const bool close = closed_ ? active_connections_ >= reopen_below : active_connections_ >= most_;
  if (close == closed_) return;
  closed_ = close;
  for (const int fd : fds_) closed_ ? block_connections(fd) : unblock_connections(fd);
  if (closed_ && !std::exchange(warned_, true))
    log_warn("connection limit reached (" + std::to_string(active_connections_) +
             "): new connections are refused");
}

std::size_t ConnectionMeter::overhead() const { return kFrameHeader + (limits_.keys ? kSealed : 0); }

void ConnectionMeter::on_accept(int fd, Clock::time_point now) {
  on_close(fd);
  connections_.insert_or_assign(fd, Connection{"", 0, 0, TokenBucket(limits_.messages, now), false});
  foreign_peers_ = true;
}

std::chrono::milliseconds ConnectionMeter::interval() const {
  if (connections_.empty()) return {};
  return foreign_peers_ ? kForeignCheckInterval : kCheckInterval;
}

void ConnectionMeter::on_close(int fd) {
  const auto gone = connections_.find(fd);
  if (gone == connections_.end()) return;
  if (const auto known = fds_.find(gone->second.peer); known != fds_.end() && known->second == fd)
    fds_.erase(known);
  connections_.erase(gone);
}

void ConnectionMeter::disconnect(int fd, Connection& connection, const char* why) {
  if (connection.disconnected) return;
  connection.disconnected = true;
  if (is_of_the_network(fd)) shutdown(fd, SHUT_RDWR);
  log_debug(std::string("disconnected a network client: ") + why);
}

bool ConnectionMeter::received(int fd, const std::string& peer, std::size_t frames, std::size_t bytes,
                               Clock::time_point now) {
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return true;
  Connection& connection = found->second;
  if (connection.peer != peer) {
    connection.peer = peer;
    fds_[peer] = fd;
  }
  connection.bytes_delivered += bytes + frames * overhead();
  if (connection.message_tokens.try_take(now)) return !connection.disconnected;
  disconnect(fd, connection, "it sends too many messages");
  return false;
}

bool ConnectionMeter::may_send(const std::string& peer, std::size_t bytes) {
  const auto known = fds_.find(peer);
  if (known == fds_.end()) return true;
  Connection& connection = connections_.at(known->second);
  if (connection.disconnected) return false;
  const auto counts = read_counts(known->second);
  if (!counts) return true;
  // The acknowledged bytes include the handshake, which `bytes_sent` does not count.
  connection.bytes_sent = std::max(connection.bytes_sent, counts->acknowledged);
  if (connection.bytes_sent + bytes - counts->acknowledged > limits_.most_out) {
    disconnect(known->second, connection, "it does not read what it is sent");
    return false;
  }
  connection.bytes_sent += bytes;
  return true;
}

void ConnectionMeter::check(Clock::time_point now) {
  const auto since = now - last_check_;
  if (connections_.empty() || since < interval()) return;
  last_check_ = now;
  foreign_peers_ = false;
  // Bytes received during a pause of this process could not be handed out. The next check judges them.
  if (since > kStoodStill && !std::exchange(had_paused_, true)) return;
  had_paused_ = false;
  for (auto& [fd, connection] : connections_) {
    if (connection.disconnected) continue;
    const auto counts = read_counts(fd);
    if (!counts) continue;
    connection.bytes_delivered = std::min(connection.bytes_delivered, counts->received);
    const std::uint64_t held = counts->received - connection.bytes_delivered;
    const bool admitted = !limits_.keys || counts->acknowledged >= kHandshakeOut;
    if (held > limits_.most_in) disconnect(fd, connection, "its data is not a gradmon message");
    foreign_peers_ = foreign_peers_ || !admitted;
    if (!admitted && held > kHandshakeIn) disconnect(fd, connection, "it sends more than a handshake");
  }
}

std::string descriptor_shortage(std::size_t to_spare) {
  if (free_descriptors() >= to_spare) return "";
  return "cannot open sockets: " + std::to_string(open_descriptors()) + " of " +
         std::to_string(most_descriptors()) + " file descriptors are in use, " + std::to_string(to_spare) +
         " must be free";
}

std::size_t free_descriptors() {
  const std::size_t used = open_descriptors();
  const std::size_t most = most_descriptors();
  return most > used ? most - used : 0;
}

void raise_descriptor_limit() {
  constexpr rlim_t most = 65'536;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min(limit.rlim_max, most);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "control/hub/transport/connection_limiter.h"

#include <linux/filter.h>
#include <sys/socket.h>

#include <string>
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

}  // namespace gradmon

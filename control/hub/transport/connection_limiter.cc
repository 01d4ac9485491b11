// SPDX-License-Identifier: Apache-2.0
#include "control/hub/transport/connection_limiter.h"

#include <linux/filter.h>
#include <sys/socket.h>

#include <string>
#include <utility>

#include "control/log.h"

namespace gradmon {
namespace {

// A packet filter that accepts nothing: the kernel then drops requests to connect.
void let_nobody_in(int fd) {
  sock_filter nothing[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
  const sock_fprog program{1, nothing};
  setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

void admit(int fd) {
  int unused = 0;
  setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof unused);
}

}  // namespace

void ConnectionLimiter::listens(int fd) { fds_.push_back(fd); }

void ConnectionLimiter::came() {
  inside_ += 1;
  settle();
}

void ConnectionLimiter::went() {
  if (inside_ > 0) inside_ -= 1;
  settle();
}

void ConnectionLimiter::settle() {
  const std::size_t reopen_below = most_ - most_ / 8;
  const bool close = closed_ ? inside_ >= reopen_below : inside_ >= most_;
  if (close == closed_) return;
  closed_ = close;
  for (const int fd : fds_) closed_ ? let_nobody_in(fd) : admit(fd);
  if (closed_ && !std::exchange(warned_, true))
    log_warn("control endpoint: " + std::to_string(inside_) + " connections, taking no more for now");
}

}  // namespace gradmon

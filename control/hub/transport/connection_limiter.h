// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

namespace gradmon {

// Bounds how many TCP connections strangers can make this process hold: each
// takes a descriptor that training may need. Past the bound the kernel drops new
// connections at the listening sockets (their clients try again after a second),
// until some have gone: idle ones are thrown out 2 s after they came. Those that
// are connected notice nothing.
class ConnectionLimiter {
 public:
  explicit ConnectionLimiter(std::size_t most) : most_(most) {}

  void listens(int fd);  // a listening socket; it stays its owner's
  void came();
  void went();

  bool closed() const { return closed_; }
  std::size_t inside() const { return inside_; }

 private:
  void settle();

  const std::size_t most_;
  std::vector<int> fds_;
  std::size_t inside_ = 0;
  bool closed_ = false;
  bool warned_ = false;  // logged, once
};

}  // namespace gradmon

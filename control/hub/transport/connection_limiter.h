// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

namespace gradmon {

// Bounds the number of TCP connections that foreign peers can open, because each takes a descriptor of this
// process. At the bound the kernel drops requests to connect at the listening sockets (clients try again
// after a second), until an eighth of the connections has gone. (Bus closes a connection without a handshake
// after 2 s.) Does not affect open connections.
class ConnectionLimiter {
 public:
  explicit ConnectionLimiter(std::size_t most) : most_(most) {}

  void add_listener(int fd);  // adds a listening socket; does not own it
  void on_accept();
  void on_close();

  bool closed() const { return closed_; }
  std::size_t active_connections() const { return active_connections_; }

 private:
  void update();

  const std::size_t most_;
  std::vector<int> fds_;
  std::size_t active_connections_ = 0;
  bool closed_ = false;
  bool warned_ = false;  // logged only once
};

}  // namespace gradmon

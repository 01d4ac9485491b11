// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "control/host/rate_limits.h"

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

// Measures and bounds the data that each TCP connection makes this process hold: bytes received but not
// handed out as a message (endless multipart messages, incomplete frames), bytes that the other end has not
// read, and messages a second. libzmq reports none of these. The kernel counts the bytes in both directions
// (TCP_INFO); this class counts the bytes handed out and sent. Shuts a connection over a bound down, and
// libzmq frees its memory. If the kernel does not count, only messages are bounded. One thread.
class ConnectionMeter {
 public:
  using Clock = std::chrono::steady_clock;

  struct Limits {
    std::size_t most_in = 0;   // bytes received, not handed out as a message yet
    std::size_t most_out = 0;  // bytes not yet read by the other end
    bool keys = false;         // CURVE is used: a peer not admitted yet may send only a handshake
    TokenBucket::Rate messages{400, 2000};
  };

  explicit ConnectionMeter(Limits limits) : limits_(limits) {}

  // A connection was opened, or has closed. libzmq owns `fd`; the number may be closed or reused by now.
  void on_accept(int fd, Clock::time_point now);
  void on_close(int fd);
  // The interval of check(); 0: no connections.
  std::chrono::milliseconds interval() const;

  // Counts a message that `peer` has sent over `fd`. On false, drop it; the peer has sent too many messages,
  // or has been cut off before.
  bool received(int fd, const std::string& peer, std::size_t frames, std::size_t bytes,
                Clock::time_point now);
  // Counts a message to `peer`. On false, do not send it; the peer has left too much unread and is cut off.
  bool may_send(const std::string& peer, std::size_t bytes);
  // Checks all connections, if interval() has passed since the last check.
  void check(Clock::time_point now);

 private:
  struct Connection {
    std::string peer;  // "" until it has sent a message
    std::uint64_t bytes_delivered = 0;
    std::uint64_t bytes_sent = 0;
    TokenBucket message_tokens;  // for messages from the peer
    bool disconnected = false;
  };

  std::size_t overhead() const;
  void disconnect(int fd, Connection& connection, const char* why);

  const Limits limits_;
  std::map<int, Connection> connections_;
  std::map<std::string, int> fds_;  // by peer
  bool foreign_peers_ = false;      // some peer is not admitted yet
  bool had_paused_ = false;
  Clock::time_point last_check_;
};

// The number of file descriptors that this process may still open. libzmq aborts the process if none is left
// for a socket of its own.
std::size_t free_descriptors();
// "" or, if fewer than `to_spare` descriptors are free, an error that says so.
std::string descriptor_shortage(std::size_t to_spare);

// Raises the soft limit to the hard limit, at most to 65,536. Only for a process that listens on TCP, because
// the limit holds for the whole process and its children: some programs close every descriptor up to the
// limit, and code that uses select() breaks on descriptors from 1024 on.
void raise_descriptor_limit();

}  // namespace gradmon

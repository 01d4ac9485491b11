// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace gradmon {

// What each TCP connection makes this process hold, and bounds for it: bytes that
// came and have not been handed out as a message (parts without end, a frame
// begun), bytes that wait because the other end does not read, messages a second.
// libzmq tells none of these; the kernel counts what went either way (TCP_INFO),
// and this class what was handed out and given. A connection over a bound is shut
// down, and libzmq drops what it holds for it. Where the kernel does not count,
// only messages are bounded. One thread.
class ConnectionMeter {
 public:
  using Clock = std::chrono::steady_clock;

  struct Limits {
    std::size_t most_in = 0;   // bytes that are no message yet
    std::size_t most_out = 0;  // bytes not yet read by the other end
    bool keys = false;         // whoever has no key may send a handshake and no more
    double messages_a_second = 400;
    double most_messages_at_once = 2000;
  };

  explicit ConnectionMeter(Limits limits) : limits_(limits) {}

  // `fd` stays libzmq's; it may be closed already, or be another's by now.
  void came(int fd, Clock::time_point now);
  void went(int fd);
  // How often look() is due; 0: there is nothing to look at.
  std::chrono::milliseconds interval() const;

  // `peer` has sent a message, of so many frames and bytes. False: over its number
  // of messages; it is cut off, and this one is to be dropped.
  bool received(int fd, const std::string& peer, std::size_t frames, std::size_t bytes, Clock::time_point now);
  // False: the peer has left so much unread that it is cut off.
  bool may_send(const std::string& peer, std::size_t bytes);
  // At all connections; before it is due nothing is done.
  void look(Clock::time_point now);

 private:
  struct Connection {
    std::string peer;            // "" until it has sent a message
    std::uint64_t handed_out = 0;
    std::uint64_t given = 0;
    double messages = 0;         // that it may still send
    Clock::time_point filled;    // up to when `messages` counts
    bool cut = false;
  };

  std::size_t overhead() const;
  void cut(int fd, Connection& connection, const char* why);

  const Limits limits_;
  std::map<int, Connection> connections_;
  std::map<std::string, int> fds_;  // by peer
  bool foreign_peers_ = false;      // somebody was not let in yet
  bool had_paused_ = false;
  Clock::time_point last_look_;
};

}  // namespace gradmon

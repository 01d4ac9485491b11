// SPDX-License-Identifier: Apache-2.0
// Attacks on a job, each in a process of its own.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>

namespace gradmon {

// Runs `attack` in a forked child, as user nobody if this process is root. The child
// is killed with the object, with the test, or after 200 s. `attack` must not use the
// test framework. Throws if there is no child.
class Attack {
 public:
  explicit Attack(const std::function<int()>& attack);
  ~Attack();
  Attack(const Attack&) = delete;
  Attack& operator=(const Attack&) = delete;

  int wait();  // the value of `attack`; -1 if it was killed; 99 if it could not become nobody
  // False if the attack has ended, or could not become nobody.
  bool running();

 private:
  pid_t pid_;  // -1: it has ended
};

// Until killed: keeps `count` silent TCP connections to a loopback port open. A
// connection that is closed is made again at once.
int hold_idle_peers(std::uint16_t port, int count);
// Makes connections one after another and sends up to 2 kB of random bytes on each.
// Returns how many could not be made.
int send_noise(std::uint16_t port, int connections, unsigned seed);
// Sends a ZMTP greeting, the header of a frame of `length` bytes, then up to `bytes`
// of it. Returns 0 if the other end hung up before it had them all.
int send_frame(std::uint16_t port, std::uint64_t length, std::uint64_t bytes);

// Until killed: keeps `count` connections open, each with all of such a frame but its
// last byte. A connection that is closed is made again.
int hold_unfinished_frames(std::uint16_t port, int count, std::uint64_t length);

}  // namespace gradmon

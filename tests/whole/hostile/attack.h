// SPDX-License-Identifier: Apache-2.0
// What a hostile neighbour does, in a process of its own.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>

namespace gradmon {

// Runs in a forked child, as user nobody where this process is root; ended, if
// need be by SIGKILL, with the object. `attack` touches no test framework.
class Attack {
 public:
  explicit Attack(const std::function<int()>& attack);
  ~Attack();
  Attack(const Attack&) = delete;
  Attack& operator=(const Attack&) = delete;

  int wait();  // what `attack` returned; -1 where it was killed

 private:
  pid_t pid_;
};

// Until killed: keeps so many TCP connections to a loopback port open and says
// nothing; one that is thrown out comes again at once.
int hold_idle_peers(std::uint16_t port, int count);
// So many connections one after another, each with up to 2 kB of noise. The
// value: how many could not be made.
int send_noise(std::uint16_t port, int connections, unsigned seed);
// A ZMTP greeting, then a frame's header of that length, then up to `bytes` of
// it. The value: 0 where the other end hung up before it had them all.
int send_frame(std::uint16_t port, std::uint64_t length, std::uint64_t bytes);

// Until killed: keeps so many connections open, each with all of one such frame but
// its last byte; one that is thrown out comes again.
int hold_begun_frames(std::uint16_t port, int count, std::uint64_t length);

}  // namespace gradmon

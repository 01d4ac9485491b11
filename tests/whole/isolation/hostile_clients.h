// SPDX-License-Identifier: Apache-2.0
// Clients of a hub's socket that mean harm, all at once, on a thread of their own.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <thread>
#include <vector>

namespace gradmon {

class HostileClients {
 public:
  enum class Kind : std::uint8_t {
    idle,      // connect and say nothing
    endless,   // announce a long frame and send without end
    garbage,   // send what is no frame
    no_reader  // ask again and again, and never read an answer
  };

  // They come again where the hub closes them.
  HostileClients(std::filesystem::path socket, Kind kind, int count);
  // All go.
  ~HostileClients();
  HostileClients(const HostileClients&) = delete;
  HostileClients& operator=(const HostileClients&) = delete;

  // Bytes that the hub has taken.
  std::uint64_t sent() const { return sent_; }

 private:
  void run();
  void press(int& fd);

  const std::filesystem::path socket_;
  const Kind kind_;
  std::vector<int> clients_;  // the thread's own
  std::atomic<std::uint64_t> sent_{0};
  std::atomic<bool> ends_{false};
  // Keep last: it uses the others.
  std::thread thread_;
};

}  // namespace gradmon

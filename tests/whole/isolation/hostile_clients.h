// SPDX-License-Identifier: Apache-2.0
// Many hostile clients of a hub's socket, driven by one thread.
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
    idle,      // connect and send nothing
    endless,   // announce a long frame and send without end
    garbage,   // send bytes that are no frame
    no_reader  // send commands, and never read a reply
  };

  // Clients that the hub disconnects connect again.
  HostileClients(std::filesystem::path socket, Kind kind, int count);
  // Closes all connections.
  ~HostileClients();
  HostileClients(const HostileClients&) = delete;
  HostileClients& operator=(const HostileClients&) = delete;

  // Bytes sent by all clients.
  std::uint64_t sent() const { return sent_; }

 private:
  void run();
  void connect_and_send(int& fd);

  const std::filesystem::path socket_;
  const Kind kind_;
  std::vector<int> clients_;  // used by thread_ only
  std::atomic<std::uint64_t> sent_{0};
  std::atomic<bool> stopping_{false};
  // Keep last: it uses the other members.
  std::thread thread_;
};

}  // namespace gradmon

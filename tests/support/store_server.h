// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace gradmon {

// A process that serves a TCPStore, as PyTorch's rank 0 or its launcher does.
class StoreServer {
 public:
  explicit StoreServer(std::string host = "127.0.0.1");
  // Kills the process.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  const std::string& host() const { return host_; }
  std::uint16_t port() const { return port_; }
  // No effect after kill().
  void pause();
  void resume();
  void kill();

 private:
  const std::string host_;
  std::uint16_t port_ = 0;
  pid_t process_ = -1;
  int input_ = -1;  // standard input of the process, which ends when this closes
};

}  // namespace gradmon

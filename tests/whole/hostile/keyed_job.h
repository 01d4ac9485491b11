// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "tests/support/real_job.h"

namespace gradmon {

// A real job whose lead hub listens on TCP on loopback, with keys; it starts off.
// All its ranks are of this host and speak to that hub over its Unix socket.
class KeyedJob {
 public:
  // `before`: shell commands that each rank runs first.
  explicit KeyedJob(int world, const std::string& before = "");

  const std::filesystem::path& keys() const { return keys_; }
  const std::string& endpoint() const { return endpoint_; }  // of TCP
  std::uint16_t port() const;
  const std::filesystem::path& socket() const { return socket_; }  // of the hub
  std::string hub_log() const;
  RealJob& job() { return job_; }
  const RealJob& job() const { return job_; }

  // Asks over TCP with the keys in that directory, on a connection of its own.
  CommandReply ask(Command command, const std::filesystem::path& with) const;
  CommandReply ask(CommandVerb verb) const;
  Status status() const;
  // Over the Unix socket, as gradmonctl on this host does.
  Status local_status() const;
  // A directory that holds only what this client needs. "alice" has the role read.
  std::filesystem::path keys_of(const std::string& name) const;

  pid_t rank0() const { return rank0_; }
  pid_t hub() const;               // now: a rank may have started it anew
  std::int64_t step() const;       // of rank 0, as it is told over TCP

 private:
  TemporaryDirectory scratch_;
  const std::filesystem::path keys_;
  const std::string endpoint_;
  RealJob job_;
  std::filesystem::path socket_;
  pid_t rank0_ = -1;
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "tests/support/real_job.h"

namespace gradmon {

// A real job that starts off. Its lead hub listens on loopback TCP, with keys. All its
// ranks run on this host and reach that hub over its Unix socket.
class KeyedJob {
 public:
  // `before`: shell commands that each rank runs first.
  explicit KeyedJob(int world, const std::string& before = "");

  const std::filesystem::path& keys() const { return keys_; }
  const std::string& endpoint() const { return endpoint_; }  // the hub's, by TCP
  std::uint16_t port() const;
  const std::filesystem::path& socket() const { return socket_; }  // the hub's Unix socket
  std::string hub_log() const;
  RealJob& job() { return job_; }
  const RealJob& job() const { return job_; }

  // Asks over TCP on a new connection, with the keys in the directory `with`.
  CommandReply ask(Command command, const std::filesystem::path& with) const;
  CommandReply ask(CommandVerb verb) const;
  Status status() const;
  // Over the Unix socket, as gradmonctl on this host does.
  Status local_status() const;
  // A directory with the server's public key and this client's secret key only. "alice" has the role read.
  std::filesystem::path keys_of(const std::string& name) const;

  pid_t rank0() const { return rank0_; }
  pid_t hub() const;          // the current one: a rank may have restarted it
  std::int64_t step() const;  // of rank 0, asked over TCP

 private:
  TemporaryDirectory scratch_;
  const std::filesystem::path keys_;
  RealJob job_;
  std::string endpoint_;
  std::filesystem::path socket_;
  pid_t rank0_ = -1;
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "tests/runtime/real_job.h"

namespace gradmon {

// A real job that listens on TCP on loopback, with keys; it starts off.
class KeyedJob {
 public:
  // `before`: shell commands that each rank runs first.
  explicit KeyedJob(int world, const std::string& before = "");

  const std::filesystem::path& keys() const { return keys_; }
  const std::string& endpoint() const { return endpoint_; }
  std::uint16_t port() const { return port_of(endpoint_); }
  std::uint16_t state_port() const { return port_of(state_endpoint_); }
  const std::string& state_endpoint() const { return state_endpoint_; }
  RealJob& job() { return job_; }
  const RealJob& job() const { return job_; }

  // Asks with the keys in that directory, on a connection of its own.
  CommandReply ask(Command command, const std::filesystem::path& with) const;
  CommandReply ask(CommandVerb verb) const;
  Status status() const;
  // A directory that holds only what this client needs. "alice" has the role read.
  std::filesystem::path keys_of(const std::string& name) const;

  pid_t rank0() const { return rank0_; }
  double resident_mib() const;           // of rank 0
  std::size_t descriptors() const;       // of rank 0
  std::size_t descriptor_limit() const;  // of rank 0, the soft one
  std::int64_t step() const;             // of rank 0

 private:
  static std::uint16_t port_of(const std::string& endpoint);

  TemporaryDirectory scratch_;
  const std::filesystem::path keys_;
  const std::string endpoint_;
  RealJob job_;
  std::string state_endpoint_;
  pid_t rank0_ = -1;
};

}  // namespace gradmon

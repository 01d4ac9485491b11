// SPDX-License-Identifier: Apache-2.0
// What gradmon-bench and a process of gradmon-bench-crowd say to each other: the
// crowd's arguments, and one line on its standard output for each verdict that
// all of its members know.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gradmon {

struct CrowdArguments {
  std::string endpoint;  // of the lead hub
  std::string keys;      // directory
  std::string launch_id;
  int world_size = 0;
  int first_rank = 0;
  int hubs = 0;
  int ranks_per_hub = 0;

  std::vector<std::string> words() const;
  // None where they are not what words() makes.
  static std::optional<CrowdArguments> from(const std::vector<std::string>& words);
};

struct CrowdReport {
  std::uint64_t revision = 0;
  std::int64_t heard_ns = 0;  // steady clock: when the last member heard
  std::uint64_t messages =
      0;  // sent and received so far by all hubs, but for Progress and its acknowledgement

  std::string line() const;
  static std::optional<CrowdReport> from(const std::string& line);
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// The interface between gradmon-bench and a gradmon-bench-simulated-hubs process: its arguments,
// and one line on its standard output for each verdict that all its members know.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gradmon {

struct SimulatedHubsArguments {
  std::string endpoint;  // of the lead hub
  std::string keys;      // directory
  std::string launch_id;
  int world_size = 0;
  int first_rank = 0;
  int hubs = 0;
  int ranks_per_hub = 0;

  std::vector<std::string> words() const;
  // nullopt: `words` is not a result of words().
  static std::optional<SimulatedHubsArguments> from(const std::vector<std::string>& words);
};

struct SimulatedHubsReport {
  std::uint64_t revision = 0;
  std::int64_t heard_ns = 0;  // steady clock: when the last member heard
  // Sent and received so far by all hubs, without Progress and ProgressAck.
  std::uint64_t messages = 0;

  std::string line() const;
  static std::optional<SimulatedHubsReport> from(const std::string& line);
};

}  // namespace gradmon

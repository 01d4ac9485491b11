// SPDX-License-Identifier: Apache-2.0
#include "tests/benchmarks/simulated_hubs/simulated_hubs_protocol.h"

#include <sstream>

namespace gradmon {

std::vector<std::string> SimulatedHubsArguments::words() const {
  return {endpoint,
          keys,
          launch_id,
          std::to_string(world_size),
          std::to_string(first_rank),
          std::to_string(hubs),
          std::to_string(ranks_per_hub)};
}

std::optional<SimulatedHubsArguments> SimulatedHubsArguments::from(const std::vector<std::string>& words) {
  if (words.size() != 7) return std::nullopt;
  SimulatedHubsArguments arguments{words[0], words[1], words[2]};
  std::istringstream numbers(words[3] + " " + words[4] + " " + words[5] + " " + words[6]);
  numbers >> arguments.world_size >> arguments.first_rank >> arguments.hubs >> arguments.ranks_per_hub;
  return numbers ? std::optional(arguments) : std::nullopt;
}

std::string SimulatedHubsReport::line() const {
  return std::to_string(revision) + " " + std::to_string(heard_ns) + " " + std::to_string(messages) + "\n";
}

std::optional<SimulatedHubsReport> SimulatedHubsReport::from(const std::string& line) {
  SimulatedHubsReport report;
  std::istringstream numbers(line);
  if (!(numbers >> report.revision >> report.heard_ns >> report.messages)) return std::nullopt;
  return report;
}

}  // namespace gradmon

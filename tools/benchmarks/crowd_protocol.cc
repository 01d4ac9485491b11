// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/crowd_protocol.h"

#include <sstream>

namespace gradmon {

std::vector<std::string> CrowdArguments::words() const {
  return {endpoint, launcher_id, std::to_string(world_size), std::to_string(first_rank),
          std::to_string(members)};
}

std::optional<CrowdArguments> CrowdArguments::from(const std::vector<std::string>& words) {
  if (words.size() != 5) return std::nullopt;
  CrowdArguments arguments{words[0], words[1]};
  std::istringstream numbers(words[2] + " " + words[3] + " " + words[4]);
  if (!(numbers >> arguments.world_size >> arguments.first_rank >> arguments.members)) return std::nullopt;
  return arguments;
}

std::string CrowdReport::line() const {
  return std::to_string(revision) + " " + std::to_string(heard_ns) + " " + std::to_string(letters) + "\n";
}

std::optional<CrowdReport> CrowdReport::from(const std::string& line) {
  CrowdReport report;
  std::istringstream numbers(line);
  if (!(numbers >> report.revision >> report.heard_ns >> report.letters)) return std::nullopt;
  return report;
}

}  // namespace gradmon

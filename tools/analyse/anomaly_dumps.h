// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "tools/analyse/anomaly.h"

namespace gradmon {

// The selection to read from the dumps below a directory.
struct AnomalyRequest {
  std::size_t count = 8;            // at least 1: keep the first ones
  std::vector<std::int64_t> steps;  // empty: all
};

struct AnomalyDumps {
  std::vector<Anomaly> first;  // in the order of happened_before()
  std::size_t anomalies = 0;   // of those steps, in all dumps
  std::size_t dumps = 0;       // files read
  std::vector<std::string>
      left_out;  // "FILE: KEY: reason" of unreadable entries; at most kMessages, and a count
};

// Reads `anomaly.json` in each directory of `directory` (rank0, rank1, …), ranks ascending. Holds one dump,
// `count` anomalies and 100,000 more in memory. The error: `directory` cannot be read or has no dump.
tl::expected<AnomalyDumps, std::string> read_anomaly_dumps(const std::filesystem::path& directory,
                                                           const AnomalyRequest& request);

}  // namespace gradmon

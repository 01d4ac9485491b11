// SPDX-License-Identifier: Apache-2.0
// anomaly.json, in the form of msprobe (ALERTS.md).
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "writers/alerts/alert_event.h"

namespace gradmon {

// Bounds of one file. The events in a file are never removed.
struct AnomalyFileLimits {
  std::size_t events = 4096;
  std::size_t bytes = std::size_t{4} << 20;
};

struct Extended {
  std::size_t left_out = 0;          // events without room in the file
  std::filesystem::path kept_aside;  // new name of a file that was no dump; else empty
};

// "0:fc1.input:0/rank0/actv_step_2_call_7_norm"
std::string anomaly_key(const AlertEvent& event);

// Adds the events to `file`, which appears and changes by rename. Skips an event that the file already has; a
// different event with the same key gets "#2", "#3", … after its key. A file that is not a JSON object is
// renamed to `{file}.broken`, `{file}.broken-2`, …. An error names the file, and means that the file is
// unchanged.
[[nodiscard]] tl::expected<Extended, std::string> extend_anomaly_file(const std::filesystem::path& file,
                                                                      const std::vector<AlertEvent>& events,
                                                                      const AnomalyFileLimits& limits = {});

}  // namespace gradmon

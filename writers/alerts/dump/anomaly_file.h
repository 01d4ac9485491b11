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

// Bounds of one file. What a file has already is never removed.
struct AnomalyFileLimits {
  std::size_t events = 4096;
  std::size_t bytes = std::size_t{4} << 20;
};

struct Extended {
  std::size_t left_out = 0;          // events that the file has no room for
  std::filesystem::path kept_aside;  // new name of a file that was no dump; empty if there was none
};

// "0:fc1.input:0/rank0/actv_step_2_call_7_norm"
std::string anomaly_key(const AlertEvent& event);

// Adds the events to `file`, which appears and changes by rename. An event that the file has already is not
// added again; a different event with the same key gets "#2", "#3", … after its key. A file that is not a
// JSON object is renamed to `{file}.broken`, `{file}.broken-2`, …. An error names the file, and means that
// the file is as it was.
[[nodiscard]] tl::expected<Extended, std::string> extend_anomaly_file(const std::filesystem::path& file,
                                                                      const std::vector<AlertEvent>& events,
                                                                      const AnomalyFileLimits& limits = {});

}  // namespace gradmon

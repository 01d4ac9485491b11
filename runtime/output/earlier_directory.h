// SPDX-License-Identifier: Apache-2.0
// Finds the run directory of an earlier job, for `append_output`.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <tl/expected.hpp>

#include "control/step.h"

namespace gradmon {

// The times, as in names of run directories ("Dec03_21-34-40"), between which the directory was begun; both
// belong to the span. The times have no year: a span whose end sorts before its begin goes over the new year.
struct TimeSpan {
  std::string first;
  std::string last;
};

struct EarlierDirectory {
  std::filesystem::path path;
  bool exists = false;
};

// The newest directory `{time}-rank{R}-{8 hex}` of that rank in the span. If the rank has none in the span:
// the directory that it would have in the newest run of any rank, so that a reader sees all ranks of the
// restarted job as one run. nullopt if no rank has one. If several have the same time, the one changed last.
// The error names the defect of the span. Not on the training thread: reads the directory.
tl::expected<std::optional<EarlierDirectory>, std::string> find_earlier_directory(
    const std::filesystem::path& output_dir, Rank rank, const TimeSpan& span);

}  // namespace gradmon

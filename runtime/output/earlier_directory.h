// SPDX-License-Identifier: Apache-2.0
// Finds the run directory of an earlier job, for `append_output`.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "control/step.h"

namespace gradmon {

// The times, as in names of run directories ("Dec03_21-34-40"), between which the directory was begun; both
// belong to the span. The times have no year: a span whose end sorts before its begin goes over the new year.
struct TimeSpan {
  std::string first;
  std::string last;
};

// Seconds from the begin of the year, with 31 days in each month. Nothing for any other text. Pure.
std::optional<long> seconds_of(std::string_view time);

// The newest directory `{time}-rank{R}-{8 hex}` of that rank in the span; nothing if there is none. Of
// several with the same time, the one that was changed last. The error says what is wrong with the span. Not
// on the training thread: reads the directory.
tl::expected<std::optional<std::filesystem::path>, std::string> find_earlier_directory(
    const std::filesystem::path& output_dir, Rank rank, const TimeSpan& span);

}  // namespace gradmon

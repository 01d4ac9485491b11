// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

namespace gradmon {

// The length of a time stamp in the names of run directories: "Dec03_21-34-40".
inline constexpr std::size_t kTimeStampLength = std::string_view("Dec03_21-34-40").size();

inline constexpr std::int64_t kSecondsInLeapYear = std::int64_t{366} * 86'400;

// Seconds from the begin of a leap year to a time stamp, which has no year. None for any other text. Pure.
std::optional<std::int64_t> seconds_in_year(std::string_view time_stamp);

// The time stamp of a time, in the process's time zone, in any locale.
std::string time_stamp_of(std::time_t time);

}  // namespace gradmon

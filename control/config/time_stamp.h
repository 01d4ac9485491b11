// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <string_view>

namespace gradmon {

// The length of a time stamp as in the names of run directories: "Dec03_21-34-40".
constexpr std::size_t kTimeStampLength = std::string_view("Dec03_21-34-40").size();

// Seconds from the begin of the year, with 31 days in each month, of a time stamp. Nothing for any other
// text. Pure.
std::optional<long> seconds_of(std::string_view time_stamp);

// The time stamp of a time, in the process's time zone, whatever its locale.
std::string time_stamp_of(std::time_t time);

}  // namespace gradmon

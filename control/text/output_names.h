// SPDX-License-Identifier: Apache-2.0
// The names of the directories and files below a job's output directory. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

#include "control/aliases.h"
#include "control/vocabulary.h"

namespace gradmon {

// The length of a time stamp in the names of run directories: "Dec03_21-34-40".
inline constexpr std::size_t kTimeStampLength = std::string_view("Dec03_21-34-40").size();

inline constexpr std::int64_t kSecondsInLeapYear = std::int64_t{366} * 86'400;

// Seconds from the begin of a leap year to a time stamp, which has no year. None for any other text. Pure.
std::optional<std::int64_t> seconds_in_year(std::string_view time_stamp);

// The time stamp of a time, in the process's time zone, in any locale.
std::string format_time_stamp(std::time_t time);

// "Nov24_12-04-37-rank3-1a2b3c4d": the directory of one rank and start.
struct RankDirectoryName {
  std::string time;          // "Nov24_12-04-37"
  std::int64_t in_year = 0;  // the time, by seconds_in_year()
  int rank = 0;
  std::string id;  // of gradmon: the same for all ranks of a run; of msprobe: different for each rank
};
std::optional<RankDirectoryName> parse_rank_directory(std::string_view name);
std::string rank_directory_name(std::string_view time, int rank, std::string_view id);
// True if the id can be one of gradmon's: 8 hexadecimal digits.
bool is_run_id(std::string_view id);

// "grad_reduced_0-99.r7.csv", or the same with ".zst" behind it
struct KindFileName {
  Kind kind = Kind::other;
  std::int64_t first_step = 0;
  std::int64_t last_step = 0;
  std::uint64_t revision = 0;  // 0: none in the name
};
std::optional<KindFileName> parse_kind_file(std::string_view name);

// The id in "run-1a2b3c4d.json"; "" for another name.
std::string id_of_run_file(std::string_view name);

// "/a/./b/" as "/a/b/". Keeps "..": behind a symbolic link it is another directory.
fs::path without_dots(const fs::path& path);

}  // namespace gradmon

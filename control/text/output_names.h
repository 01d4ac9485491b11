// SPDX-License-Identifier: Apache-2.0
// The names of the directories and files below a job's output directory. Pure.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "control/vocabulary.h"

namespace gradmon {

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

// "grad_reduced_0-99.r7.csv"
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
std::filesystem::path without_dots(const std::filesystem::path& path);

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// Finds the databases of a run.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <tl/expected.hpp>
#include <vector>

namespace gradmon {

// The database of one rank and run.
struct RankFile {
  std::filesystem::path path;
  int rank = -1;       // from the name of its directory; -1: not in the name
  std::string run_id;  // the same; "": not in the name
};

// The run of an output directory whose databases are read.
struct ChosenRun {
  std::filesystem::path output_dir;
  std::string run_id;
  std::size_t known = 0;  // the number of runs in the directory
};

struct RankFiles {
  std::vector<RankFile> files;  // by rank, then path
  std::vector<ChosenRun> runs;  // one for each output directory
};

// The databases at each place: a database file, the directory of a run and rank, or an output directory. From
// an output directory, takes the run `run_id`, by default the newest. The error names the place and the
// expected input.
tl::expected<RankFiles, std::string> find_rank_files(const std::vector<std::filesystem::path>& places,
                                                     const std::string& run_id);

}  // namespace gradmon

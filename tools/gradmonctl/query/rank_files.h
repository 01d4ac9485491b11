// SPDX-License-Identifier: Apache-2.0
// Finds the databases of a run.
#pragma once

#include <filesystem>
#include <string>
#include <tl/expected.hpp>
#include <vector>

namespace gradmon {

// The database of one rank and run.
struct RankFile {
  std::filesystem::path path;
  int rank = -1;       // by the name of its directory; -1: the name does not say
  std::string run_id;  // the same; "": the name does not say
};

struct RankFiles {
  std::vector<RankFile> files;    // by rank, then path
  std::vector<std::string> runs;  // ids of the runs that were found, the newest first
};

// The databases at each place: a database file, the directory of a run and rank, or an output directory.
// Of several runs in an output directory only the one named `run_id`, by default the newest. An error names
// the place and what was expected there.
tl::expected<RankFiles, std::string> find_rank_files(const std::vector<std::filesystem::path>& places,
                                                     const std::string& run_id);

}  // namespace gradmon

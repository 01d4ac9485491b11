// SPDX-License-Identifier: Apache-2.0
// The files of a job's output to convert.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "tools/analyse/rows/row.h"
#include "tools/analyse/rows/runs.h"

namespace gradmon {

// The user's choice. A value.
struct InputChoice {
  std::filesystem::path path;        // as find_run() takes it
  std::optional<std::int64_t> from;  // earliest time in a directory's name, as RankDirectoryName::in_year
  std::optional<std::int64_t> to;    // the latest; nullopt in either: no limit
  std::vector<Kind> kinds;           // ascending; empty: all
};

// The directories of one rank, from its first start on.
struct RankInput {
  int rank = 0;
  std::vector<std::filesystem::path> starts;
};

// Ascending by rank. Names of directories carry no year: their order is that of runs_in(). The error names
// the found and the expected input; no directory in the range is an error.
tl::expected<std::vector<RankInput>, std::string> chosen_directories(const InputChoice& choice,
                                                                     Problems& problems);

// A file of one kind and rank.
struct InputFile {
  KindFile file;
  std::size_t start = 0;  // index into RankInput::starts
};

// The files of each chosen kind. Sorted like kind_files_in(), then by start.
std::map<Kind, std::vector<InputFile>> chosen_files(const RankInput& rank, const std::vector<Kind>& kinds,
                                                    Problems& problems);

// The rows that one thread converts: the rows of one rank and kind. The task lists the files again when it
// begins, so that the lists of a large job are not in memory at the same time.
struct ConversionTask {
  const RankInput* rank = nullptr;
  Kind kind = Kind::other;

  std::vector<InputFile> files(Problems& problems) const;
};

struct ConversionTasks {
  std::vector<ConversionTask> tasks;  // rank by rank, kinds in their order
  std::uint64_t bytes = 0;            // of all files
};

// `ranks` must outlive the tasks. Directories that cannot be read are problems.
ConversionTasks conversion_tasks(const std::vector<RankInput>& ranks, const std::vector<Kind>& kinds,
                                 Problems& problems);

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// The files of an output directory that belong to one run of a job.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "control/text/output_names.h"
#include "tools/analyse/rows/row.h"

namespace gradmon {

struct RankDirectory {
  int rank = 0;
  std::filesystem::path path;
};

// One start of a job. A value.
struct Run {
  std::string id;       // 8 hex digits; of msprobe: those of the lowest rank
  std::string started;  // as in run-{id}.json, else as in the name of a directory: "Nov24_12-04-37"
  std::vector<RankDirectory> ranks;  // ascending
};

// The runs of an output directory, the newest last. Directories with the same id form a run. Directories
// without run-{id}.json and with an unshared id, as msprobe makes them, form a run if they follow each other
// within 10 minutes and have different ranks. Names carry no year: the longest time of the year between two
// names is assumed to lie before the oldest one. The error: `output_dir` cannot be read.
tl::expected<std::vector<Run>, std::string> runs_in(const std::filesystem::path& output_dir,
                                                    Problems& problems);

// A job's output directory if the user names no path: MONITOR_OUTPUT_DIR, else ./monitor_output.
std::filesystem::path default_output_dir();

// The name of a directory: "b" of "a/b/", that of the working directory of ".".
std::string directory_name(const std::filesystem::path& directory);

// The run that the user names: an output directory (its newest run, or the run `id`), the directory of one
// rank, or a file run-{id}.json. The error names the expected input.
tl::expected<Run, std::string> find_run(const std::filesystem::path& path, const std::string& id,
                                        Problems& problems);

struct KindFile {
  KindFileName name;
  std::filesystem::path path;
};

// The CSV files in the directory of a rank, by kind; ascending by first step, then by revision.
std::map<Kind, std::vector<KindFile>> kind_files_in(const std::filesystem::path& directory,
                                                    Problems& problems);

}  // namespace gradmon

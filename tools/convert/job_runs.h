// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "tools/analyse/rows/row.h"
#include "tools/analyse/rows/runs.h"

namespace gradmon {

// The contents of run-{id}.json (FORMAT.md). Empty without the file.
struct RunNotes {
  struct RankNote {
    std::int64_t rank = 0;
    std::string host;
    std::int64_t pid = 0;
  };
  struct RevisionNote {
    std::int64_t revision = 0;
    std::int64_t effective_step = 0;
    bool on = false;
    std::string cause;
    std::string by;
    std::string config;  // JSON
  };

  std::int64_t world_size = -1;  // -1: unknown
  std::vector<std::pair<std::string, std::string>> versions;
  std::vector<RankNote> ranks;
  std::vector<RevisionNote> revisions;
  std::int64_t revisions_left_out = 0;
  std::string scopes;  // JSON; "": none
};

// Parses the text of a run-{id}.json. The error names the expected content. Pure.
tl::expected<RunNotes, std::string> parse_run_notes(const std::string& text);

// One start of the job.
struct JobRun {
  Run run;
  std::filesystem::path output_dir;
  RunNotes notes;
};

// The runs at the places, in the order given, each once: all runs of an output directory, the oldest first;
// the run of a run-{id}.json; or one rank's directory. The error names the place and the expected input. A
// run-{id}.json that cannot be read is a problem.
tl::expected<std::vector<JobRun>, std::string> job_runs(const std::vector<std::filesystem::path>& places,
                                                        Problems& problems);

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// run-{id}.json: what ran, under which configs; writers/FORMAT.md describes it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "control/agree/journal.h"
#include "control/step.h"
#include "hooks/watched_model.h"
#include "runtime/run_directory.h"

namespace gradmon {

struct RunRank {
  Rank rank;
  std::string host;
  std::int64_t pid = 0;
};

// A plan as it was put in force.
struct RunRevision {
  Revision revision;
  Step effective;
  bool on = false;
  std::string cause;
  std::string by;
  std::string config_text;  // valid JSON
};

// A value.
struct RunFile {
  std::string run_id;
  WallTime started = 0;
  int world_size = 1;
  std::vector<RunRank> ranks;                   // those that rank 0 has heard of
  std::map<std::string, std::string> versions;  // of "gradmon", "torch", …
  std::vector<RunRevision> revisions;           // in the order of their numbers
  std::map<std::string, Scope> scopes;          // by parameter, as "0:fc1.weight"
};

// The file's text. Pure but for the time zone, which is the process's.
std::string to_json(const RunFile& file);

// Writes run-{id}.json beside the run directories, and renames it there; waits
// for the job's identity as the first CSV file does. The writer thread.
tl::expected<void, std::string> write_run_file(RunDirectory& directory, RunFile file);

}  // namespace gradmon

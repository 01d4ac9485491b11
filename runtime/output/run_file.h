// SPDX-License-Identifier: Apache-2.0
// run-{id}.json: what ran, under which configs; writers/FORMAT.md describes it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "control/agree/journal.h"
#include "control/step.h"
#include "hooks/names/watched_model.h"
#include "runtime/output/run_directory.h"

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

// A value, cheap to copy.
struct RunFile {
  using Scopes = std::map<std::string, Scope>;  // by parameter, as "0:fc1.weight"

  std::string run_id;
  WallTime started = 0;
  int world_size = 1;
  std::vector<RunRank> ranks;                                 // those that rank 0 has heard of
  std::map<std::string, std::string> versions;                // of "gradmon", "torch", …
  std::vector<std::shared_ptr<const RunRevision>> revisions;  // in the order of their numbers
  std::uint64_t revisions_left_out = 0;                       // after the first
  std::shared_ptr<const Scopes> scopes;
};

// Adds it. Where there are more than a thousand, or more than 16 MiB of config, the
// oldest but the first are left out.
void add_revision(RunFile& file, RunRevision revision);

// The file's text, the configs as they were written. Pure but for the time zone,
// which is the process's.
std::string to_json(const RunFile& file);

// Writes run-{id}.json beside the run directories, and renames it there; waits
// for the job's identity as the first CSV file does. The writer thread.
tl::expected<void, std::string> write_run_file(RunDirectory& directory, RunFile file);

}  // namespace gradmon

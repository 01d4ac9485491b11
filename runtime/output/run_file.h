// SPDX-License-Identifier: Apache-2.0
// run-{id}.json: the run's ranks and revisions with their configs. writers/FORMAT.md describes it.
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

// A plan that was put in force.
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
  using Scopes = std::map<std::string, ParameterPlacement>;  // by parameter, as "0:fc1.weight"

  std::string run_id;
  WallTime started = 0;
  int world_size = 1;
  std::vector<RunRank> ranks;                                 // the ranks that rank 0 knows of
  std::map<std::string, std::string> versions;                // of "gradmon", "torch", …
  std::vector<std::shared_ptr<const RunRevision>> revisions;  // in the order of their numbers
  std::uint64_t revisions_left_out = 0;                       // number of dropped revisions, after the first
  std::shared_ptr<const Scopes> scopes;
};

// Adds a revision. Above 1,000 revisions, or 16 MiB of configs, drops the oldest ones after the first.
void add_revision(RunFile& file, RunRevision revision);

// Returns the file's text. Configs keep their own text. Pure, except that it reads the process's time
// zone.
std::string to_json(const RunFile& file);

// Writes run-{id}.json into the output directory, by rename. Fills in run id and start time. Writer thread:
// may wait for the job's identity, see RunDirectory::identity().
tl::expected<void, std::string> write_run_file(RunDirectory& directory, RunFile file);

}  // namespace gradmon

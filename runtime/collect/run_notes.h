// SPDX-License-Identifier: Apache-2.0
// The notes in the output about the run and its rows: run-{id}.json has the run's ranks and revisions with
// their configs, scopes.json the scopes of a rank's rows. writers/FORMAT.md describes both.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <unordered_map>
#include <vector>

#include "control/agree/journal.h"
#include "control/agree/step_gate.h"
#include "control/step.h"
#include "control/vocabulary.h"
#include "gradmon/status.h"
#include "hooks/rows/watched_model.h"
#include "runtime/collect/run_directory.h"
#include "writers/queue/name_table.h"
#include "writers/queue/writer_thread.h"

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

// Rank 0's notes about the job, in run-{id}.json. Training thread, at step boundaries; the writer
// thread writes the file. The first note() creates the file.
class RunNotes {
 public:
  // `ranks`: those that rank 0 knows of now. `writer` must outlive this object.
  RunNotes(std::shared_ptr<RunDirectory> directory, int world_size,
           std::function<std::vector<RankStatus>()> ranks, WriterThread& writer);

  // Adds the scopes of a model chunk.
  void add_model(const WatchedModel& chunk);
  // Adds a plan that was put in force.
  void note(const Commitment& commitment);
  // Queues a write of the file with the ranks known now. Does nothing before the first note(). Calls
  // before the writer thread starts the write are merged into one.
  void renew() noexcept;

 private:
  struct Draft;

  // Constant after construction.
  const std::shared_ptr<RunDirectory> directory_;
  const std::function<std::vector<RankStatus>()> ranks_;
  WriterThread& writer_;
  const std::shared_ptr<Draft> draft_;  // own synchronisation; the next content to write

  RunFile file_;
};

// The scopes of this rank's rows, by target and kind, for scopes.json in the rank's directory and for the
// sinks (writers/FORMAT.md). Training thread.
class ScopeNotes {
 public:
  // `names` must outlive this object; the scopes are in it, too. `replicas`: number of ranks that hold the
  // same replicated parameters, including this rank; 0: unknown.
  ScopeNotes(NameTable& names, std::size_t replicas) : names_(names), replicas_(replicas) {}

  // Rows with that target belong to the parameter. Call it before the first row.
  void expect(std::uint32_t target, const WatchedParameter& parameter);
  // Sets the scope of the rows of that kind and target from now on, as reported by a tensor. Call it before
  // the tensor's row.
  void note(Kind kind, std::uint32_t target, const ScopeText& scope) noexcept;
  // A row is written. Without note() it has the scope of its parameter, if it is a parameter's row.
  void count_row(Kind kind, std::uint32_t target) noexcept;

  // The scopes for the sinks. A row's scope is in the table before the row is queued. Any thread.
  const std::shared_ptr<const ScopeTable>& table() const { return shared_table_; }

  // Queues a write of the file if it has changed. Call it after the step's rows are queued: without rows
  // there is no directory, and no file.
  void write(std::shared_ptr<RunDirectory> directory, WriterThread& writer);
  // The file's content, if it has changed since the last call.
  std::optional<std::string> take_changed();

 private:
  struct Placed {
    ParameterPlacement placement;
    bool replicated = true;
    ScopeText unreduced_scope, scope;  // of its sharding; null: none
  };
  void add(Kind kind, std::uint32_t target);
  void publish(Kind kind, std::uint32_t target, const ScopeText& scope);
  ScopeText find_scope(Kind kind, const Placed& parameter) const;

  // Constant after construction.
  NameTable& names_;
  const std::size_t replicas_;
  const std::shared_ptr<ScopeTable> table_ = std::make_shared<ScopeTable>();
  const std::shared_ptr<const ScopeTable> shared_table_ = table_;

  std::unordered_map<std::uint32_t, Placed> parameters_;
  std::unordered_map<std::uint64_t, ScopeText> scopes_;  // by kind and target; null: unknown, not written
  std::vector<std::uint16_t> counted_;  // by target: the bits of the kinds of its rows so far
  bool changed_ = false;
  std::shared_ptr<const std::string> not_queued_;  // the file's content, if the writer has refused it
  ReplacingWrites writes_;
};

}  // namespace gradmon

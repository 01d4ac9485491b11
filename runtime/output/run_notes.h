// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "control/agree/step_gate.h"
#include "runtime/output/run_file.h"
#include "writers/queue/writer_thread.h"

namespace gradmon {

// Rank 0's notes about the job, in run-{id}.json. Training thread, at step boundaries; the writer
// thread writes the file. The first note() creates the file.
class RunNotes {
 public:
  using Ranks = std::function<std::vector<RankStatus>()>;  // the ranks that rank 0 knows of now

  // `writer` must outlive this object.
  RunNotes(std::shared_ptr<RunDirectory> directory, int world_size, Ranks ranks, WriterThread& writer);

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
  const Ranks ranks_;
  WriterThread& writer_;
  const std::shared_ptr<Draft> draft_;  // own synchronisation; the next content to write

  RunFile file_;
};

}  // namespace gradmon

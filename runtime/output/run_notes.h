// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "control/agree/step_gate.h"
#include "runtime/output/run_file.h"
#include "writers/queue/writer_thread.h"

namespace gradmon {

// What rank 0 notes of the job in run-{id}.json. Training thread, at boundaries;
// the writer thread writes. The first note makes the file.
class RunNotes {
 public:
  using Ranks = std::function<std::vector<RankStatus>()>;  // what rank 0 knows of them now

  // `writer` outlives this.
  RunNotes(std::shared_ptr<RunDirectory> directory, int world_size, Ranks ranks, WriterThread& writer);

  // Another model chunk.
  void add_model(const WatchedModel& chunk);
  // A plan that is put in force.
  void note(const Commitment& commitment);
  // Once more, with the ranks that have come meanwhile; nothing before the first note.
  // However often before the writer comes to it, it is written once.
  void renew() noexcept;

 private:
  struct Draft;

  // Constant after construction.
  const std::shared_ptr<RunDirectory> directory_;
  const Ranks ranks_;
  WriterThread& writer_;
  const std::shared_ptr<Draft> draft_;  // own synchronisation; what is to be written next

  RunFile file_;
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// Tells apart the micro batches of a step: autograd itself knows only passes.
#pragma once

#include <memory>

namespace gradmon {

// A micro batch is one outermost backward() in which enter() was called; a pass
// within a pass (reentrant checkpointing) belongs to the one around it, and
// passes that overlap in time, on whatever threads, are one micro batch.
//
// How: a graph task (the run of one backward) gets a final callback that does
// nothing, but whose end is the task's own end, for the engine keeps it that
// long. Where a task ends within another, on the thread that runs that one, the
// other is followed likewise; where it does not, it was an outermost one. Only
// on devices with worker threads may a task end on a thread that does not tell:
// a nested pass may then be taken for a micro batch of its own.
class MicroBatches {
 public:
  struct Place {
    int index = 0;        // of the step, from 0
    bool begins = false;  // nobody has entered it before
  };

  MicroBatches();
  ~MicroBatches();
  MicroBatches(const MicroBatches&) = delete;
  MicroBatches& operator=(const MicroBatches&) = delete;

  // The training thread: counts from 0 again. A pass that has not ended belongs to
  // the step before (a device's thread may end it after backward() has returned),
  // but where this is called within one.
  void begin_step();
  // How many there have been in this step.
  int count() const;
  // Within a backward pass, on the thread that runs it.
  Place enter();

 private:
  class Passes;

  // Shared with the callbacks, which may outlive this.
  const std::shared_ptr<Passes> passes_;
};

}  // namespace gradmon

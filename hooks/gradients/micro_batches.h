// SPDX-License-Identifier: Apache-2.0
// Counts the micro batches of a step. Autograd itself knows only backward passes.
#pragma once

#include <memory>

namespace gradmon {

// A micro batch is one outermost backward() in which enter() was called. A pass within a pass (reentrant
// checkpointing) belongs to the enclosing one. Passes that overlap in time, on any threads, are one micro
// batch.
//
// Implementation: a graph task (one run of backward) gets a final callback that does nothing. The engine
// destroys the callback when the task ends, so its destructor reports the end of the task. If a task ends
// on a thread that runs another task, it was nested in that task, which then gets a callback, too.
// Otherwise it was an outermost one. On devices with worker threads a nested task may end on another
// thread, and the nested pass may then count as a micro batch of its own.
class MicroBatches {
 public:
  struct Place {
    int index = 0;        // in the step, from 0
    bool begins = false;  // this call of enter() is the first in the micro batch
  };

  MicroBatches();
  ~MicroBatches();
  MicroBatches(const MicroBatches&) = delete;
  MicroBatches& operator=(const MicroBatches&) = delete;

  // Training thread. Counts from 0 again. A pass that has not ended belongs to the previous step, because
  // a device's thread may end it after backward() has returned. Exception: if this is called within a
  // pass, the open passes are the first micro batch of the new step.
  void begin_step();
  // The number of micro batches that have begun in this step.
  int count() const;
  // Returns the current micro batch. Call it within a backward pass, on the thread that runs the pass, or
  // after begin_without_pass().
  Place enter();
  // Begins a micro batch in which the program accumulates by itself, outside any pass.
  void begin_without_pass();

 private:
  class Passes;

  // Shared with the callbacks, which may outlive this.
  const std::shared_ptr<Passes> passes_;
};

}  // namespace gradmon

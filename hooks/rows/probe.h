// SPDX-License-Identifier: Apache-2.0
// What collects one family of kinds under one plan; HookSet is made of these.
#pragma once

#include <cstddef>
#include <vector>

#include "control/step.h"
#include "hooks/rows/optimizer_state.h"
#include "hooks/rows/row_writer.h"

namespace gradmon {

class ForwardListener;

// One call of an optimizer's step: which of the parameters watched are its own
// (places among them, rising), and what it keeps of them (null: not known).
struct Update {
  std::vector<std::size_t> places;
  const OptimizerState* state = nullptr;

  at::Tensor gradient_of(const at::Tensor& parameter) const {
    return state ? state->gradient_of(parameter) : parameter.grad();
  }
};

// Training thread, at step boundaries, but for hook bodies, which run wherever
// torch calls them. The constructor attaches, the destructor detaches. A member
// that throws trips the fuse of its HookSet; hook bodies guard themselves.
class Probe {
 public:
  Probe() = default;
  virtual ~Probe() = default;
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  // Before a step that is collected: forgets the last one, and arms.
  virtual void begin_step(Step step) = 0;
  // After it, also where the fuse has tripped: hook bodies cost one load from now on.
  virtual void disarm() noexcept {}
  // Before a step that is not collected, after one that was.
  virtual void rest() noexcept {}
  // Around the optimizer's step, any number of times in a step.
  virtual void before_update(const Update&) {}
  virtual void after_update(const Update&) {}
  // The rows of the step that begin_step named, once disarmed.
  virtual void write_rows(RowWriter& rows) = 0;

  // Hooks in place now.
  virtual std::size_t attached() const noexcept { return 0; }
  // Where it wants to see modules' forwards; null: it does not. Lives as long as the probe.
  virtual ForwardListener* forward_listener() noexcept { return nullptr; }
};

}  // namespace gradmon

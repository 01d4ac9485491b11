// SPDX-License-Identifier: Apache-2.0
// Collects one family of kinds for one plan. A HookSet consists of probes.
#pragma once

#include <cstddef>
#include <vector>

#include "control/step.h"
#include "hooks/rows/optimizer_state.h"
#include "hooks/rows/row_writer.h"

namespace gradmon {

class ForwardListener;

// One call of an optimizer's step: the watched parameters that it holds (their indices, ascending),
// and its state (null: unknown).
struct Update {
  const std::vector<std::size_t>& parameter_indices;
  const OptimizerState* state = nullptr;

  UpdateReads reads() const { return state ? state->reads() : UpdateReads::everything; }
  at::Tensor gradient_of(const at::Tensor& parameter) const {
    return state ? state->gradient_of(parameter) : parameter.grad();
  }
  at::Tensor value_of(const at::Tensor& parameter) const {
    return state ? state->value_of(parameter) : parameter;
  }
};

// Training thread, at step boundaries; hook bodies run on the thread where torch calls them. The
// constructor attaches the hooks, the destructor detaches them. An exception from a member function trips
// the fuse of the HookSet; hook bodies catch their own exceptions.
class Probe {
 public:
  Probe() = default;
  virtual ~Probe() = default;
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  // All that it may read for. In steps without any of them it is not called, except by release_hooks().
  virtual Readers readers() const { return kForRows; }
  // Before a step that `active` read. Clears the readings of the previous such step and arms the hooks.
  virtual void begin_step(Step step, Readers active) = 0;
  // After the step, even if the fuse has tripped. From now on a hook body costs one load.
  virtual void disarm() noexcept {}
  // Before each other step.
  virtual void release_hooks() noexcept {}
  // See HookSet::gathered().
  virtual void gathered(const void* /* unit */) {}
  // True if before_update() is also called for UpdateReads::weights, or for gradients.
  virtual bool reads(UpdateReads) const { return false; }
  // Before and after the optimizer's step; any number of times per step.
  virtual void before_update(const Update&) {}
  virtual void after_update(const Update&) {}
  // Writes the rows of the step; called after disarm().
  virtual void write_rows(RowWriter& rows) = 0;

  // The listener for forward calls of modules; null if the probe needs none. Lives as long as the probe.
  virtual ForwardListener* forward_listener() noexcept { return nullptr; }
};

}  // namespace gradmon

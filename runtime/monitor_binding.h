// SPDX-License-Identifier: Apache-2.0
// What a binding of another language does beside Monitor's own members: it has no
// torch::nn::Module to be watched and no torch::optim::Optimizer to be called.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "gradmon/monitor.h"
#include "hooks/observe/call_site.h"
#include "hooks/rows/optimizer_state.h"
#include "hooks/names/watched_model.h"

namespace gradmon {

// Training thread, as the monitor's members; nothing throws.
class MonitorBinding {
 public:
  // The monitor outlives it.
  explicit MonitorBinding(Monitor& monitor) : monitor_(monitor) {}

  // Asked at least every 100 ms while the training thread waits at a boundary;
  // where it says yes the wait is given up, and stop() has to follow: the step that
  // begins then is not agreed on. Must not throw.
  void while_waiting(std::function<bool()> interrupted) noexcept;

  // Where calls come from, in the program's own language: before the first watch().
  void call_stacks(StackSource stack) noexcept;

  // Of this process in the job; 0 where that could not be found out.
  int rank() const noexcept;

  // As Monitor::watch(). Names, tensors and identities are taken; the chunk's
  // number and who writes what is worked out here.
  void watch(WatchedModel chunk) noexcept;

  // In the place of what watch() was given as its `chunk`th, from 0.
  void watch_again(int chunk, WatchedModel model) noexcept;

  // In a step that is collected, before its backward: what its gradients are multiplied by.
  void gradient_scale(double scale) noexcept;
  // A scaler has left out the optimizer's step of this iteration.
  void skipped() noexcept;
  // What status says of how the program uses the monitor, from now on; in the place of what it said.
  void note_warnings(std::vector<std::string> warnings) noexcept;
  // Whether what the two below bring is wanted in this step.
  bool collecting() const noexcept;
  // Around an optimizer's step: its parameters, not none of them, and what it keeps of them.
  void before_update(const std::vector<at::Tensor>& parameters, const OptimizerState& state) noexcept;
  void after_update(const std::vector<at::Tensor>& parameters, const OptimizerState& state) noexcept;

 private:
  Monitor& monitor_;
};

}  // namespace gradmon

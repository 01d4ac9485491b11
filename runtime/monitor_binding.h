// SPDX-License-Identifier: Apache-2.0
// Additional members of Monitor for bindings to other languages, which have no torch::nn::Module to
// watch and no torch::optim::Optimizer to call.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "gradmon/monitor.h"
#include "hooks/observe/call_site.h"
#include "hooks/rows/optimizer_state.h"
#include "hooks/rows/watched_model.h"

namespace gradmon {

class Collection;

// Training thread, like Monitor's members. No member throws.
class MonitorBinding {
 public:
  // `monitor` must outlive the binding.
  explicit MonitorBinding(Monitor& monitor) : monitor_(monitor) {}

  // `interrupted` is called at least every 100 ms while the training thread waits at a boundary. If it
  // returns true, the wait ends and the rank lapses; the caller must then call stop(), because the next step
  // is not agreed on. It must not throw.
  void set_interrupt_check(std::function<bool()> interrupted) noexcept;

  // Sets the source of call stacks in the program's language. Call it before the first watch().
  void set_stack_source(StackSource stack) noexcept;

  // This process's rank in the job; 0 if unknown.
  int rank() const noexcept;

  // Like Monitor::watch(). Reads names, tensors and identities from `chunk`; assigns its vpp_stage,
  // authors and scopes.
  void watch(WatchedModel chunk) noexcept;

  // Replaces a watched chunk. `chunk` counts the calls of watch(), from 0.
  void watch_again(int chunk, WatchedModel model) noexcept;

  // Sets the factor in this step's gradients (GradScaler), of one chunk (vpp_stage) or of all. Call it in a
  // collected step, before its backward.
  void gradient_scale(double scale, std::optional<int> chunk = {}) noexcept;
  // A GradScaler has skipped the optimizer's step of this iteration.
  void note_skipped_update() noexcept;
  // Replaces the warnings that status() shows about the program's use of the monitor.
  void note_warnings(std::vector<std::string> warnings) noexcept;
  void note_attached(std::vector<std::string> lines) noexcept;  // see TargetList::attached
  // True if this step is collected, or measured for the flight recorder. If false, the members below do
  // nothing.
  bool collecting() const noexcept;
  bool takes_scalars() const noexcept;  // true if Monitor::scalar() has a use for values
  // An FSDP unit (ParameterSharding::unit) has just gathered its parameters for a forward. Runs on the
  // forward's thread, without the GIL.
  void gathered(const void* unit) noexcept;
  // Call them just before and just after an optimizer's step, with its parameters and its state. Without
  // parameters they do nothing.
  void before_update(const std::vector<at::Tensor>& parameters, const OptimizerState& state) noexcept;
  void after_update(const std::vector<at::Tensor>& parameters) noexcept;
  // `state`: of an optimizer that updates master copies or pieces (OptimizerState::value_of).
  void after_update(const std::vector<at::Tensor>& parameters, const OptimizerState& state) noexcept;
  // Passes a gradient before its reduction (WatchedParameter::gradient_source). The training thread, or a
  // thread that runs a backward of the parameter.
  void deliver_gradient(const at::Tensor& parameter, const at::Tensor& gradient) noexcept;

  // Passes a value of this step. `begun`: when the work for it began, which counts as overhead.
  void tap(const TappedValue& value, std::chrono::steady_clock::time_point begun) noexcept;

 private:
  Collection* collection() const noexcept;  // null unless collecting()

  Monitor& monitor_;
};

}  // namespace gradmon

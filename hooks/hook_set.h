// SPDX-License-Identifier: Apache-2.0
// All hooks of one plan. They are attached and detached together.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "control/step.h"
#include "hooks/observe/call_site.h"
#include "hooks/rows/hook_fuse.h"
#include "hooks/rows/hook_settings.h"
#include "hooks/rows/reading.h"
#include "hooks/rows/record_stream.h"
#include "hooks/rows/target_match.h"
#include "hooks/rows/watched_model.h"

namespace gradmon {

class OptimizerState;

// Training thread only; constructed and destroyed at a step boundary. Hook bodies also run on autograd's
// worker threads. Nothing throws, not even the constructor: the first failure trips a fuse and is logged
// once, the rows of its step are lost, later calls do nothing, and the next begin_step removes the
// hooks. The hooks change nothing in training (no gradient mode, random state or version counter) and keep
// no graph alive.
//
//   begin_step(n, collect)  backward…  before_update  optimizer  after_update  end_step
//
// Records of step n are passed to the stream in end_step, those of parameters in this order:
//   grad_unreduced  the gradient after the last accumulation of the step before the parameter's last
//                   before_update, and before any other hook (DDP's) reduces it; if the step updates
//                   other parameters only, after its last accumulation; sequence: order of first arrival
//   grad_reduced    the gradient at before_update; of several calls, the last
//   exp_avg, exp_avg_sq, other (mg_direction)
//                   at before_update; of several calls, the moments of the first, mg_direction of the last
//   param_origin    the parameter at before_update; of several calls, the first
//   param_updated   the parameter at after_update; of several calls, the last
// The sequence of all but the first is the parameter's index in the model's list.
// A parameter has gradient rows only if it took part in the step: its accumulator fired, or its gradient
// was replaced or written and is not all zeros (so zero_grad alone makes no row). Empty tensors have no rows.
class HookSet {
 public:
  // `stack` returns the program's call stack, for collective calls and call stacks of modules. Null: the
  // watched modules around the call are used instead.
  HookSet(const HookSettings& settings, const WatchedModel& model, RecordStream& stream,
          StackSource stack = {}) noexcept;
  ~HookSet();
  HookSet(const HookSet&) = delete;
  HookSet& operator=(const HookSet&) = delete;

  // Begins a step that `active` read. Without any of them the other calls return at once, and a hook body
  // costs one load.
  void begin_step(Step step, Readers active) noexcept;
  // An FSDP unit (ParameterSharding::unit) has just gathered its parameters for a forward. Runs on the
  // forward's thread, without the GIL.
  void gathered(const void* unit) noexcept;
  // Before and after an optimizer's step, with the optimizer's parameters (empty: all watched parameters) and
  // its state (null: unknown). Any number of times per step. A state that passes values early
  // (OptimizerState::Reads) has rows only if a state with the values follows in the step.
  void before_update(const std::vector<at::Tensor>& optimizer_parameters,
                     const OptimizerState* state = nullptr) noexcept;
  void after_update(const std::vector<at::Tensor>& optimizer_parameters,
                    const OptimizerState* state = nullptr) noexcept;
  // Reads a value that the program passes, in a step with kForRows; end_step() writes its row.
  void tap(const TappedValue& value) noexcept;
  void end_step() noexcept;
  // Passes the gradient of a parameter that a framework takes away before its accumulator's hook runs
  // (WatchedParameter::gradient_source). Undefined: the gradient passed last also has the micro batches
  // before it, so it belongs to no single micro batch. Training thread, or a thread that runs a backward of
  // the parameter.
  void deliver_gradient(const at::Tensor& parameter, const at::Tensor& gradient) noexcept;

  // True if before_update() has a use for OptimizerState::of(), and if after_update() does anything.
  bool reads_moments() const noexcept;
  bool reads_after_update() const noexcept;
  // The parameters that are read, in the model's order.
  const std::vector<WatchedTensor>& parameters() const noexcept;
  // Indices into target_names() of the model, and the patterns that matched nothing.
  const MatchReport& matches() const noexcept { return matches_; }
  // The number of rows skipped so far because their values cannot be had. The first one is logged.
  std::uint64_t not_applicable() const noexcept;
  // Time spent in hooks and in the calls above so far, on all threads together. Any thread.
  std::chrono::nanoseconds hook_time() const noexcept { return fuse_.hook_time(); }
  // The failure that tripped the fuse. Any thread.
  std::optional<HookFailure> failure() const { return fuse_.failure(); }

 private:
  class Attached;

  bool reads() const noexcept;

  MatchReport matches_;
  HookFuse fuse_;
  std::unique_ptr<Attached> attached_;  // null if attaching failed. Keep last.
};

}  // namespace gradmon

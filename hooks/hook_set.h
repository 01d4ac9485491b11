// SPDX-License-Identifier: Apache-2.0
// All hooks of one plan, attached and detached as one.
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
#include "hooks/rows/record_stream.h"
#include "hooks/names/target_match.h"
#include "hooks/names/watched_model.h"

namespace gradmon {

class OptimizerState;

struct HookCounts {
  std::size_t watched = 0;           // parameters selected
  std::size_t attached = 0;          // hooks in place
  std::uint64_t rows = 0;            // handed to the stream
  std::uint64_t refused = 0;         // of these, dropped by the stream
  std::uint64_t not_applicable = 0;  // readings without numbers: meta, freed storage
};

// Training thread only, construction and destruction at a step boundary; its
// hook bodies also run on autograd's workers. Nothing throws, the constructor
// included: the first failure trips a fuse (logged once), the rows of its step
// are lost, every later call does nothing, and the next begin_step takes the
// hooks off. It changes nothing in training: no gradient mode, random state or
// version counter, and it holds no graph.
//
//   begin_step(n, collect)  backward…  before_update  optimizer  after_update  end_step
//
// Records of step n, handed to the stream in end_step, in this order:
//   grad_unreduced  after the last accumulation of the step, before any other
//                   hook (DDP's) reduces it; sequence: order of first arrival
//   grad_reduced    as before_update finds it
//   param_origin    likewise, the first of several calls
//   param_updated   as the last after_update finds it; sequence of these three:
//                   place in the list of parameters given
// A parameter has gradient rows only if it took part: its accumulator fired, or
// its gradient was replaced or written and is not all zeros (so zero_grad alone
// makes no row). Empty tensors have none.
class HookSet {
 public:
  // `stack` tells where collective calls are made and modules are called; null: in
  // which watched modules.
  HookSet(const HookSettings& settings, WatchedModel model, RecordStream& stream,
          StackSource stack = {}) noexcept;
  ~HookSet();
  HookSet(const HookSet&) = delete;
  HookSet& operator=(const HookSet&) = delete;

  // Arms for one step. With `collect` false the other calls return at once and
  // hook bodies cost one load.
  enum class Collect : bool { no, yes };
  void begin_step(Step step, Collect collect) noexcept;
  // With the parameters of the optimizer that is about to step (has stepped),
  // an empty list meaning all that are watched, and what it keeps of them (null:
  // not known). Any number of times a step.
  void before_update(const std::vector<at::Tensor>& optimizer_parameters,
                     const OptimizerState* state = nullptr) noexcept;
  void after_update(const std::vector<at::Tensor>& optimizer_parameters,
                    const OptimizerState* state = nullptr) noexcept;
  void end_step() noexcept;

  // Indices into target_names() of the model, and the patterns that selected nothing.
  const MatchReport& matches() const noexcept;
  HookCounts counts() const noexcept;
  // print_struct: the module structure has been handed to the stream.
  bool structure_written() const noexcept;
  // Spent in hooks and in the calls above so far, on all threads together. Any thread.
  std::chrono::nanoseconds spent() const noexcept { return fuse_.spent(); }
  // The failure that tripped the fuse. Any thread.
  std::optional<HookFailure> failure() const;

 private:
  class Attached;

  MatchReport matches_;
  HookFuse fuse_;
  std::unique_ptr<Attached> attached_;  // null where attaching failed. Keep last.
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// The place where a parameter's gradient is met as it arrives.
#pragma once

#include <ATen/core/Tensor.h>

#include "hooks/gradients/accumulator_hook.h"
#include "hooks/gradients/post_accumulate_hook.h"
#include "hooks/rows/hook_fuse.h"
#include "hooks/rows/reading.h"

namespace gradmon {

// Training thread, while no backward runs through the parameter; the calls come on any thread that runs a
// backward.
//
// A PostAccumulateHook where there can be one: also because other code's hooks of that kind may reduce the
// gradient. Otherwise a hook of the accumulator, which is then held.
class GradientAttachment {
 public:
  struct Calls {
    AccumulatorHook::Body delivered;       // by the accumulator, with its inputs
    PostAccumulateHook::Body accumulated;  // since torch 2.7 also by a pass that has delivered no gradient
  };

  // `needs_inputs`: `accumulated` does not do where `delivered` can be had. `parameter` and `fuse` must
  // outlive this.
  GradientAttachment(const WatchedTensor& parameter, bool needs_inputs, Calls calls, HookFuse& fuse);
  ~GradientAttachment() { detach(); }
  GradientAttachment(const GradientAttachment&) = delete;
  GradientAttachment& operator=(const GradientAttachment&) = delete;

  // Attaches to the parameter, if it can receive gradients and is not attached as it should be. A frozen
  // parameter keeps what it has, which receives the gradients once it is unfrozen.
  void refresh();
  // Attaches to another leaf, which holds the parameter's elements.
  void attach_to(const at::Tensor& leaf);
  // While nothing is collected. A frozen parameter keeps its accumulator.
  void release() noexcept;
  void detach() noexcept;

  // The tensor that backward accumulates into.
  const at::Tensor& leaf() const { return leaf_.defined() ? leaf_ : *parameter_.tensor; }
  // In `delivered`: other code's post-accumulate hook, which came after refresh(), has run before.
  bool overtaken() const;

 private:
  bool attach_after_accumulation();
  void attach_to_accumulator(NodePointer accumulator);
  void replaced() noexcept;

  const WatchedTensor& parameter_;
  const bool needs_inputs_;
  const AccumulatorHook::Body delivered_;
  HookFuse& fuse_;
  at::Tensor leaf_;  // undefined: the parameter itself
  // One of the two is attached.
  AccumulatorHook to_accumulator_;
  PostAccumulateHook after_accumulation_;
  bool may_be_overtaken_ = false;  // to_accumulator_: there was no other post-accumulate hook then
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// Attaches the hook that sees a parameter's gradient when autograd accumulates it.
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
// Uses a PostAccumulateHook if possible, also because such hooks of other code may reduce the gradient.
// Otherwise uses a hook of the accumulator, and holds the accumulator.
class GradientAttachment {
 public:
  struct Calls {
    AccumulatorHook::Body delivered;       // by the accumulator, with its inputs
    PostAccumulateHook::Body accumulated;  // since torch 2.7 also called by a pass without a gradient
  };

  // `needs_inputs`: `delivered` is preferred to `accumulated`, if it is possible. `parameter` and `fuse` must
  // outlive this.
  GradientAttachment(const WatchedTensor& parameter, bool needs_inputs, Calls calls, HookFuse& fuse);
  ~GradientAttachment() { detach(); }
  GradientAttachment(const GradientAttachment&) = delete;
  GradientAttachment& operator=(const GradientAttachment&) = delete;

  // Attaches to the parameter, if it can receive gradients and the right hook is missing. A frozen parameter
  // keeps its hook, which receives the gradients once the parameter is unfrozen.
  void refresh();
  // Attaches to another leaf, which holds the parameter's elements.
  void attach_to(const at::Tensor& leaf);
  // Call it while nothing is collected. A frozen parameter keeps its accumulator.
  void release() noexcept;
  void detach() noexcept;

  // The tensor that backward accumulates into.
  const at::Tensor& leaf() const { return leaf_.defined() ? leaf_ : *parameter_.tensor; }
  // Call it in `delivered`. True: other code's post-accumulate hook, added after refresh(), has run before.
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
  // Only one is attached.
  AccumulatorHook to_accumulator_;
  PostAccumulateHook after_accumulation_;
  bool may_be_overtaken_ = false;  // to_accumulator_: other code had no post-accumulate hook at refresh()
};

}  // namespace gradmon

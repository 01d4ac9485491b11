// SPDX-License-Identifier: Apache-2.0
// Attaches the hook that sees a parameter's gradient when autograd accumulates it.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "hooks/observe/graph_node.h"
#include "hooks/rows/hook_fuse.h"
#include "hooks/rows/reading.h"

namespace gradmon {

// False if the parameter's shape has changed (LazyLinear, `.data = `). The old accumulator must then be
// released: while it is held, torch makes no new one, and backward() throws.
bool fits(const torch::autograd::Node& accumulator, const at::Tensor& parameter);

// True if the backward pass that runs on this thread accumulates into this leaf.
bool reaches(const at::Tensor& leaf);

class GradientAttachment;
class OwnPostAccumulateHook;

// Gets the calls of a parameter's hook, on any thread that runs a backward.
class GradientListener {
 public:
  // By the accumulator, with the gradients that it received, after the accumulation.
  virtual void delivered(const torch::autograd::variable_list& inputs) noexcept = 0;
  // After an accumulation; since torch 2.7 also after a pass without a gradient.
  virtual void accumulated() noexcept = 0;

 protected:
  ~GradientListener() = default;
};

// A post-hook of the node that accumulates a parameter's gradient. Training thread, while no backward runs
// through the node. Keeps the node alive, because a parameter holds its accumulator only weakly.
class AccumulatorHook {
 public:
  // The place among the post-hooks that the node has when the hook is attached.
  enum class Order : bool { first, last };

  AccumulatorHook() = default;
  ~AccumulatorHook() { detach(); }
  AccumulatorHook(const AccumulatorHook&) = delete;
  AccumulatorHook& operator=(const AccumulatorHook&) = delete;

  // Detaches from the earlier node first.
  void attach(NodePointer accumulator, Order order, GradientListener& listener);
  void detach() noexcept;
  // Null while detached.
  const NodePointer& accumulator() const { return accumulator_; }

 private:
  NodePointer accumulator_;
  std::uintptr_t key_ = 0;
};

// A hook that runs right after a parameter's gradient was accumulated. Training thread, while no backward
// runs through the parameter; the body is called on any thread that runs a backward, ahead of all post-hooks
// of the accumulator (DDP's).
//
// Unlike a post-hook of the accumulator, it holds no accumulator. A held accumulator keeps the stream that
// made it: a backward on another stream waits for that stream, and fails while captured into a CUDA graph.
class PostAccumulateHook {
 public:
  // Puts a body before the program's Python hooks of this kind; returns a function that removes the body, or
  // null if the program has never had such hooks: see WatchedParameter.
  using HookFirst = std::function<std::function<void()>(std::function<void()>)>;

  // `owner` is told, once for each attach_alone(), when the tensor loses the hook without detach(): other
  // code has replaced the hook, or the tensor, with another. It may attach again.
  PostAccumulateHook(GradientListener& listener, GradientAttachment& owner);
  ~PostAccumulateHook();
  PostAccumulateHook(const PostAccumulateHook&) = delete;
  PostAccumulateHook& operator=(const PostAccumulateHook&) = delete;

  // Makes it the first hook of this kind. False if the program has none in Python.
  bool attach_before_others(const HookFirst& hook_first);
  // Makes it the only hook of this kind, except gradmon's own. False with torch before 2.1, or if the
  // parameter has a hook of other code.
  bool attach_alone(const at::Tensor& parameter);
  void detach(const at::Tensor& parameter) noexcept;
  // True if the next accumulation will call it.
  bool is_on(const at::Tensor& parameter) const;

 private:
  friend class OwnPostAccumulateHook;

  void leave() noexcept;

  GradientListener& listener_;
  GradientAttachment& owner_;
  std::function<void()> take_off_;  // null unless attached before others
  // The tensor's hook, which calls this one; null unless attached alone. Clears this when it dies.
  OwnPostAccumulateHook* on_ = nullptr;
  std::unique_ptr<OwnPostAccumulateHook> spare_;  // for the next time, without allocation
};

// Training thread, while no backward runs through the parameter; the calls come on any thread that runs a
// backward.
//
// Uses a PostAccumulateHook if possible, also because such hooks of other code may reduce the gradient.
// Otherwise uses a hook of the accumulator, and holds the accumulator.
class GradientAttachment {
 public:
  // `needs_inputs`: delivered() is preferred to accumulated(), if it is possible. `parameter`, `listener` and
  // `fuse` must outlive this.
  GradientAttachment(const WatchedTensor& parameter, bool needs_inputs, GradientListener& listener,
                     HookFuse& fuse)
      : parameter_(parameter),
        needs_inputs_(needs_inputs),
        listener_(listener),
        fuse_(fuse),
        after_accumulation_(listener, *this) {}
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
  // Call it in delivered(). True: other code's post-accumulate hook, added after refresh(), has run before.
  bool overtaken() const;

 private:
  bool attach_after_accumulation();
  void attach_to_accumulator(NodePointer accumulator);
  friend class OwnPostAccumulateHook;
  void replaced() noexcept;

  const WatchedTensor& parameter_;
  const bool needs_inputs_;
  GradientListener& listener_;
  HookFuse& fuse_;
  at::Tensor leaf_;  // undefined: the parameter itself
  // Only one is attached.
  AccumulatorHook to_accumulator_;
  PostAccumulateHook after_accumulation_;
  bool may_be_overtaken_ = false;  // to_accumulator_: other code had no post-accumulate hook at refresh()
};

}  // namespace gradmon

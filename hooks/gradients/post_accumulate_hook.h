// SPDX-License-Identifier: Apache-2.0
// A hook that runs right after a parameter's gradient was accumulated.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace gradmon {

class OwnPostAccumulateHook;

// Training thread, while no backward runs through the parameter; the body is called on any thread that runs a
// backward, ahead of all post-hooks of the accumulator (DDP's).
//
// Unlike a post-hook of the accumulator, it holds no accumulator. A held accumulator keeps the stream that
// made it: a backward on another stream waits for that stream, and fails while captured into a CUDA graph.
class PostAccumulateHook {
 public:
  using Body = std::function<void()>;
  // Puts a body before the program's Python hooks of this kind; returns a function that removes the body, or
  // null if the program has never had such hooks: see WatchedParameter.
  using HookFirst = std::function<std::function<void()>(Body)>;

  // `lost` is called, once for each attach_alone(), when the tensor loses the hook without detach(): other
  // code has replaced the hook, or the tensor, with another. `lost` may attach again.
  PostAccumulateHook(Body body, std::function<void()> lost);
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

  const Body body_;
  const std::function<void()> lost_;
  std::function<void()> take_off_;  // null unless attached before others
  // The tensor's hook, which calls this one; null unless attached alone. Clears this when it dies.
  OwnPostAccumulateHook* on_ = nullptr;
  std::unique_ptr<OwnPostAccumulateHook> spare_;  // for the next time, without allocation
};

// True if other code has post-accumulate hooks on the parameter (torch >= 2.1), which run ahead of the
// accumulator's post-hooks. True also after the last one was removed.
bool has_other_post_accumulate_hooks(const at::Tensor& parameter);

}  // namespace gradmon

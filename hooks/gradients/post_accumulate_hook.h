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
// Unlike a post-hook of the accumulator it holds no accumulator. One that is held keeps the stream on which
// it was made: a backward on another stream waits for it, and fails while it is captured into a CUDA graph.
class PostAccumulateHook {
 public:
  using Body = std::function<void()>;
  // Puts a body before the hooks of this kind that the program has in Python; returns what takes it off
  // again, or null if the program has never had any: see WatchedParameter.
  using HookFirst = std::function<std::function<void()>(Body)>;

  // `lost` is called, once for each attach_alone(), when the tensor no longer has the hook, unless by
  // detach(): other code has put a hook of its own in its place, or another tensor in that of this one.
  // `lost` may attach again.
  PostAccumulateHook(Body body, std::function<void()> lost);
  ~PostAccumulateHook();
  PostAccumulateHook(const PostAccumulateHook&) = delete;
  PostAccumulateHook& operator=(const PostAccumulateHook&) = delete;

  // Makes it the first hook of this kind. False if the program has none in Python.
  bool attach_before_others(const HookFirst& hook_first);
  // Makes it the only hook of this kind, but for gradmon's own. False with torch before 2.1, or if the
  // parameter has one of other code.
  bool attach_alone(const at::Tensor& parameter);
  void detach(const at::Tensor& parameter) noexcept;
  // Whether it will be called.
  bool is_on(const at::Tensor& parameter) const;

 private:
  friend class OwnPostAccumulateHook;

  void leave() noexcept;

  const Body body_;
  const std::function<void()> lost_;
  std::function<void()> take_off_;  // null unless attached before others
  // The tensor's, which calls this one; null unless attached alone. Clears this when it dies.
  OwnPostAccumulateHook* on_ = nullptr;
  std::unique_ptr<OwnPostAccumulateHook> spare_;  // for the next time, which then does not allocate
};

// Whether other code has post-accumulate hooks on the parameter (torch >= 2.1), which run ahead of the
// accumulator's post-hooks. True also after the last one was removed.
bool has_other_post_accumulate_hooks(const at::Tensor& parameter);

}  // namespace gradmon

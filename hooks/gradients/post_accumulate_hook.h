// SPDX-License-Identifier: Apache-2.0
// A hook that runs right after a parameter's gradient was accumulated.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace gradmon {

// Training thread, while no backward runs through the parameter; the body is called on any thread that runs a
// backward, ahead of all post-hooks of the accumulator (DDP's).
//
// Unlike a post-hook of the accumulator it holds no accumulator. One that is held keeps the stream on which
// it was made: a backward on another stream waits for it, and fails while it is captured into a CUDA graph.
class PostAccumulateHook {
 public:
  using Body = std::function<void()>;
  // Puts a body before the hooks of this kind that the program has in Python; returns what takes it off
  // again, or null if there are none: see WatchedParameter.
  using HookFirst = std::function<std::function<void()>(Body)>;

  PostAccumulateHook() = default;
  ~PostAccumulateHook() { leave(); }
  PostAccumulateHook(const PostAccumulateHook&) = delete;
  PostAccumulateHook& operator=(const PostAccumulateHook&) = delete;

  // Makes it the first hook of this kind, if the program has any. False if it has none.
  bool attach_before_others(const HookFirst& hook_first, Body body);
  // Makes it the only hook of this kind, but for gradmon's own. False with torch before 2.1, or if the
  // parameter has one of other code.
  bool attach_alone(const at::Tensor& parameter, Body body);
  void detach(const at::Tensor& parameter) noexcept;

  // Whether it will be called.
  bool is_on(const at::Tensor& parameter) const;
  // Whether other code has since put a hook of its own in its place. True once; it is detached from then on.
  bool was_replaced(const at::Tensor& parameter);

 private:
  void leave() noexcept;

  std::function<void()> take_off_;  // null unless attached before others
  // Null unless attached alone. The hook shares it, because a tensor that was swapped takes its hook away:
  // there an emptied body does nothing.
  std::shared_ptr<Body> body_;
};

// Whether other code has post-accumulate hooks on the parameter (torch >= 2.1), which run ahead of the
// accumulator's post-hooks. True also after the last one was removed.
bool has_other_post_accumulate_hooks(const at::Tensor& parameter);

}  // namespace gradmon

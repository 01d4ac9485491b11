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
  // again, or null if the program has never had any: see WatchedParameter.
  using HookFirst = std::function<std::function<void()>(Body)>;

  PostAccumulateHook() = default;
  ~PostAccumulateHook() { leave(); }
  PostAccumulateHook(const PostAccumulateHook&) = delete;
  PostAccumulateHook& operator=(const PostAccumulateHook&) = delete;

  // Makes it the first hook of this kind. False if the program has none in Python.
  bool attach_before_others(const HookFirst& hook_first, Body body);
  // Makes it the only hook of this kind, but for gradmon's own. False with torch before 2.1, or if the
  // parameter has one of other code. `lost` is called, once, when the tensor no longer has it, unless by
  // detach(): other code has put a hook of its own in its place, or another tensor in that of this one.
  // `lost` may attach again.
  bool attach_alone(const at::Tensor& parameter, Body body, std::function<void()> lost);
  void detach(const at::Tensor& parameter) noexcept;
  // Whether it will be called.
  bool is_on(const at::Tensor& parameter) const;

 private:
  friend class OwnPostAccumulateHook;
  struct Attached {
    Body body;  // null: left
    std::function<void()> lost;
    const void* hook;  // on the tensor; null: there is none any more
  };

  void leave() noexcept;

  std::function<void()> take_off_;  // null unless attached before others
  // Null unless attached alone. The tensor shares it, and may outlive this: there it then does nothing.
  std::shared_ptr<Attached> attached_;
};

// Whether other code has post-accumulate hooks on the parameter (torch >= 2.1), which run ahead of the
// accumulator's post-hooks. True also after the last one was removed.
bool has_other_post_accumulate_hooks(const at::Tensor& parameter);

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// Reads each parameter's gradient where it has just been accumulated, before
// anybody else's hook (DDP's) reduces it.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "hooks/reading.h"

namespace gradmon {

// Training thread, at step boundaries, but for the hook bodies, which also run
// on autograd's workers: one parameter's on one thread at a time. Owns the
// gradient accumulators, which a parameter holds weakly; the hook is the first
// of Node::post_hooks() and never one of the tensor's own hooks, which it would
// delete.
class GradientHooks {
 public:
  // `watched`, `fuse` outlive this. Parameters that require no gradient now are
  // looked at again at each refresh.
  GradientHooks(const std::vector<Watched>& watched, double eps, HookFuse& fuse);
  // Takes every hook off; what is left of the graph runs without them.
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

  // Before a step that is collected: attaches again where an accumulator was
  // replaced (`.double()`), forgets the last step, and arms.
  void begin_step();
  void disarm() noexcept { armed_.store(false, std::memory_order_release); }

  // Whether the parameter's accumulator has fired in this step, or its gradient
  // was replaced or written since the step began.
  bool fired(std::size_t parameter) const;
  bool touched(std::size_t parameter) const;

  // What the last delivery of the step left, and by order of first arrival the
  // parameters that fired.
  const Reading& reading(std::size_t parameter) const;
  std::vector<std::size_t> arrivals() const;

  std::size_t attached() const noexcept;

 private:
  class Slot;

  void refresh();

  // Constant after construction.
  const std::vector<Watched>& watched_;
  HookFuse& fuse_;
  const double eps_;
  // Own synchronisation.
  std::atomic<bool> armed_{false};
  std::atomic<std::uint64_t> arrivals_{0};
  // Each slot is written by its hook while armed, else by the training thread.
  std::vector<std::unique_ptr<Slot>> slots_;  // Keep last: detaches before the rest dies.
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// Turns what a program tells of its forwards into visits of one watched model.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "hooks/observe/forward_listener.h"
#include "hooks/rows/hook_fuse.h"
#include "hooks/names/watched_model.h"

namespace gradmon {

// Training thread, at step boundaries; the listeners are called where forwards
// run. A module registered under two names is visited under the first.
//
// Passed over: modules that are not watched; evaluation, by the mode of the
// module and of what is around it; a forward that begins outermost with
// gradients disabled (within one that did not, as reentrant checkpointing runs
// it, it counts). A forward inside a backward is a recomputation. A module that
// is entered while itself or the root is being entered on that thread has been
// left by an exception nobody told of.
class ForwardTap {
 public:
  // The listeners and `fuse` outlive it.
  ForwardTap(const std::vector<WatchedModule>& modules, int grad_acc_steps,
             std::vector<ForwardListener*> listeners, HookFuse& fuse);
  // disarm().
  ~ForwardTap();
  ForwardTap(const ForwardTap&) = delete;
  ForwardTap& operator=(const ForwardTap&) = delete;

  void begin_step();
  // Waits for the listeners that are being called just now (a tensor is read,
  // at most); none is called afterwards.
  void disarm() noexcept;

 private:
  class Observer;
  std::shared_ptr<Observer> observer_;
};

// The watched modules around the caller, the innermost first: indices into
// WatchedModel::modules. Within a listener: of the visit's own thread, with its module.
std::vector<std::size_t> modules_around();

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// Turns the forwards that a program reports into visits of one watched model.
#pragma once

#include <cstddef>
#include <memory>
#include <unordered_map>
#include <vector>

#include "hooks/names/watched_model.h"
#include "hooks/observe/forward_listener.h"
#include "hooks/rows/hook_fuse.h"
#include "hooks/rows/training_passes.h"

namespace gradmon {

// Training thread, at step boundaries. The listeners are called on the threads that run the forwards. A
// module registered under two names is visited under the first.
//
// Not visited: modules that are not watched; forwards in evaluation mode, and everything within them; an
// outermost forward with gradients disabled. A forward with gradients disabled is visited inside a
// visited one, because reentrant checkpointing runs it that way. A forward inside a backward is a
// recomputation. If the root is entered while an earlier forward of it is still open on that thread, the
// earlier one counts as ended by an exception that was not reported.
class ForwardTracker {
 public:
  // The listeners and `fuse` must outlive this. `passes` counts the forwards of the first chunk's root; null:
  // they are not counted.
  ForwardTracker(const std::vector<WatchedModule>& modules, int grad_acc_steps,
                 std::vector<ForwardListener*> listeners, HookFuse& fuse,
                 std::shared_ptr<TrainingPasses> passes = {});
  // Calls disarm().
  ~ForwardTracker();
  ForwardTracker(const ForwardTracker&) = delete;
  ForwardTracker& operator=(const ForwardTracker&) = delete;

  void begin_step();
  // Waits for listener calls in progress, which at most read a tensor. No listener is called afterwards.
  void disarm() noexcept;

 private:
  class Observer;
  std::shared_ptr<Observer> observer_;
};

// Index in WatchedModel::modules, by identity. A module registered under two names has the first.
using ModuleIndices = std::unordered_map<const void*, std::size_t>;
ModuleIndices module_indices(const std::vector<WatchedModule>& modules);

// The modules of `modules` whose forwards are running on this thread, innermost first. Skips modules that
// only another model watches. Within a listener, the module of the visit is the first.
std::vector<std::size_t> modules_around(const ModuleIndices& modules);

}  // namespace gradmon

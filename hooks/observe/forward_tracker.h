// SPDX-License-Identifier: Apache-2.0
// Turns the forwards that a program reports into visits of one watched model.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hooks/observe/forward_listener.h"
#include "hooks/rows/hook_fuse.h"
#include "hooks/rows/hook_settings.h"
#include "hooks/rows/watched_model.h"

namespace gradmon {

// Assigns to each forward its micro step, and the number of the call of its module in that micro step. Not
// thread-safe; the owner locks. A micro step is one forward of a chunk's root (the module without a name). If
// no root has been seen in the step, each outermost forward of the chunk's first seen module begins a micro
// step, but at most `grad_acc_steps` begin that way: further forwards are calls of the last.  A recomputation
// belongs to the earliest forward of its module that ran without gradients (reentrant checkpointing) and has
// not been recomputed yet, because pipelines run their backwards in the order of their forwards. If a module
// is called several times in one micro step, the recomputations are assigned in the order of the calls. This
// order is right within one checkpointed part, and reversed if each call is a part of its own. The graph of
// any other recomputation is never run, because the graph of the forward itself has all gradients.  A forward
// that throws is retracted, so that its retry does not begin another micro step.
class MicroStepCounter {
 public:
  MicroStepCounter(const std::vector<WatchedModule>& modules, int grad_acc_steps);

  void begin_step();

  struct Place {
    int micro_step = 0;
    int call = 1;
  };
  // outermost(): a forward with no watched forward around it on this thread. within(): a forward inside
  // another one, with the micro step of that one. recomputed(): empty if the graph of the recomputation
  // is never run.
  enum class Gradients : bool { disabled, enabled };
  Place outermost(std::size_t module, Gradients gradients);
  Place within(std::size_t module, int micro_step, Gradients gradients);
  std::optional<Place> recomputed(std::size_t module);
  // The same for a tapped value, by its name in a chunk. `micro_step`: of the forward around it.
  Place tapped(int vpp_stage, const std::string& name, int micro_step, Gradients gradients);
  std::optional<Place> tapped_again(int vpp_stage, const std::string& name, int micro_step);
  // Retracts the forward for which outermost() returned `place`. True: it had begun the newest micro step of
  // the chunk; that micro step and all its forwards are no longer counted. False: no change.
  bool retract(std::size_t module, const Place& place);
  // The chunk's current micro step.
  int micro_step(int vpp_stage) const;

 private:
  struct Chunk {
    std::size_t leader = static_cast<std::size_t>(-1);  // the module whose forwards begin micro steps
    bool root_leads = false;
    int micro_steps = 0;  // begun so far
  };
  struct Calls {
    std::vector<int> forward;              // number of forwards, by micro step
    std::vector<Place> without_gradients;  // forwards that ran without gradients, in order
    std::size_t recomputed = 0;            // number of `without_gradients` that have been recomputed
  };

  static Place next(Calls& calls, int micro_step, Gradients gradients);
  static std::optional<Place> next_recomputed(Calls& calls, int otherwise);

  // Constant after construction.
  const int grad_acc_steps_;
  std::vector<int> stages_;  // by module
  std::vector<bool> roots_;  // by module

  std::map<int, Chunk> chunks_;
  std::vector<Calls> calls_;                             // by module
  std::map<std::pair<int, std::string>, Calls> tapped_;  // by stage and name
};

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

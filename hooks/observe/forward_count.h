// SPDX-License-Identifier: Apache-2.0
// Which micro step of a step a forward belongs to, and which call of its module it is.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hooks/names/watched_model.h"

namespace gradmon {

// Not thread-safe: its owner locks. A micro step is one forward of a chunk's
// root (the module without a name). Where no root has been seen in the step, it
// begins as the first module seen of the chunk is entered again, but there are
// never more than `grad_acc_steps` of them; further calls are calls.
//
// A recomputation is of the earliest forward of that module that ran without
// gradients (in reentrant checkpointing) and has not been recomputed yet: pipelines
// run their backwards in the order of their forwards. (Of a module called several
// times in one micro step, in the order of the calls: right within one checkpointed
// part, reversed where each call has its own.) The graph of any other recomputation is
// never run: the forward's own has all gradients.
//
// A forward that throws is given back: its retry is not another micro step.
class ForwardCount {
 public:
  ForwardCount(const std::vector<WatchedModule>& modules, int grad_acc_steps);

  void begin_step();

  struct Place {
    int micro_step = 0;
    int call = 1;
  };
  // A forward that nothing watched is around on this thread, and one within
  // another, whose micro step it shares.
  enum class Gradients : bool { disabled, enabled };
  Place outermost(std::size_t module, Gradients gradients);
  Place within(std::size_t module, int micro_step, Gradients gradients);
  std::optional<Place> recomputed(std::size_t module);
  // A value by name in a chunk; `micro_step` as of what is around it.
  Place tapped(int vpp_stage, const std::string& name, int micro_step, Gradients gradients);
  std::optional<Place> tapped_again(int vpp_stage, const std::string& name, int micro_step);
  // True: outermost(), which gave `place`, began the newest micro step of the
  // chunk, and none of its forwards has been.
  bool give_back(std::size_t module, const Place& place);
  // Of the chunk, as it stands.
  int micro_step(int vpp_stage) const;

 private:
  struct Chunk {
    std::size_t leader = static_cast<std::size_t>(-1);  // whose forwards are counted
    bool root_leads = false;
    int micro_steps = 0;  // begun
  };
  struct Calls {
    std::vector<int> forward;              // by micro step
    std::vector<Place> without_gradients;  // of these
    std::size_t recomputed = 0;            // of those
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

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// The forward of a watched module as probes see it (activations, attention,
// router logits, structure), whoever tells of it: C++'s observe(), a tap, Python's hooks.
#pragma once

#include <cstddef>
#include <string_view>

#include "hooks/observe/forward_entry.h"

namespace gradmon {

struct ForwardVisit {
  std::size_t module = 0;   // index into WatchedModel::modules; of a tapped value kNoModule
  int micro_step = 0;       // of this step, from 0
  int call = 1;             // of this module in this micro step, from 1; not counting recomputations
  bool recomputed = false;  // inside a backward, for checkpointing
};
inline constexpr std::size_t kNoModule = static_cast<std::size_t>(-1);

// Called while armed only, in training mode with gradients enabled (or
// recomputed), on the thread that runs the forward: more than one at a time is
// possible. A before_forward is followed by its after_forward on the same
// thread, with the same visit, unless the forward throws; between the two come
// those of the modules within. What it throws trips the fuse.
class ForwardListener {
 public:
  virtual ~ForwardListener() = default;
  virtual void before_forward(const ForwardVisit& visit, const ForwardTensors& inputs) = 0;
  virtual void after_forward(const ForwardVisit& visit, const ForwardTensors& outputs) = 0;
  // The forward that began a micro step of its module's chunk threw: what was told
  // of that micro step in that chunk holds no longer, and the next one begins it anew.
  virtual void abandoned(const ForwardVisit&) {}
  // gradmon::tap(): `within` is the visit of the innermost module around it, else
  // has kNoModule; its `call` is that of the name in this micro step.
  virtual void tapped(const ForwardVisit& /*within*/, std::string_view /*name*/, const at::Tensor&) {}
  // gradmon::attention(): `visit` is of the module that is named, which has no
  // name then, else has kNoModule; its `call` is that of the name in this micro step.
  virtual void attended(const ForwardVisit& /*visit*/, std::string_view /*name*/, const at::Tensor& /*q*/,
                        const at::Tensor& /*k*/, Causal) {}
};

}  // namespace gradmon

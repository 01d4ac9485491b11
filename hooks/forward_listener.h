// SPDX-License-Identifier: Apache-2.0
// The forward of a watched module as probes see it (activations, attention,
// router logits, structure), whoever tells of it: C++'s observe(), a tap, Python's hooks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <vector>

namespace gradmon {

// What goes into a module, or comes out: nested containers flattened, what is
// no tensor left out. Valid during the call only; a listener keeps nothing alive.
struct ForwardTensors {
  struct Element {
    at::Tensor tensor;  // may be undefined
    std::string key;    // its place in the container: "0", or a dict's key; "" if lone
  };
  std::vector<Element> elements;
  bool lone = false;  // a tensor by itself, not in a container
};

struct ForwardVisit {
  std::size_t module = 0;   // index into WatchedModel::modules
  int micro_step = 0;       // of this step, from 0
  int call = 1;             // of this module in this micro step, from 1; not counting recomputations
  bool recomputed = false;  // inside a backward, for checkpointing
};

// Called while armed only, in training mode with gradients enabled (or
// recomputed), on the thread that runs the forward: more than one at a time is
// possible. What it throws trips the fuse.
class ForwardListener {
 public:
  virtual ~ForwardListener() = default;
  virtual void before_forward(const ForwardVisit& visit, const ForwardTensors& inputs) = 0;
  virtual void after_forward(const ForwardVisit& visit, const ForwardTensors& outputs) = 0;
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// The parameters and modules that the program passed to watch(), as values.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gradmon {

// Which rank writes the rows of a parameter that several ranks of a parallel group hold.
enum class RowAuthor : std::uint8_t {
  this_rank,
  this_rank_unreduced_only,  // this rank writes grad_unreduced only; another rank writes the rest
  another_rank,
};

// The part of a parameter that this rank holds.
struct ParameterPlacement {
  enum class Part : std::uint8_t { whole, replica, shard };
  Part part = Part::whole;  // replica: other ranks hold the same values
  int index = 0;            // of the shard
  int count = 1;            // number of shards
};

// The tensor that a framework accumulates a parameter's gradients in, instead of `grad` (Megatron's
// `main_grad`).
struct MainGradient {
  at::Tensor tensor;  // undefined: the parameter has none
  // A fused kernel has added the gradient to `tensor`. The gradient that autograd delivers is then garbage.
  bool fused_accumulation = false;
};

// How the gradient before reduction reaches GradientHooks.
enum class UnreducedSource : std::uint8_t {
  accumulator,  // a hook of its accumulator reads it
  delivered,  // deliver_gradient() passes it in each micro batch: a framework's own hook takes it away first
  // deliver_gradient() passes what has accumulated in the step; the gradient of one micro batch is read by a
  // hook of the accumulator, which also tells whether the parameter has taken part.
  delivered_accumulated,
};

// A parameter as the model lists it, frozen parameters included (they have weight rows only). A tensor
// that is listed under several names is watched once, under the first name that is selected.
struct WatchedParameter {
  std::string name;
  int vpp_stage = 0;
  at::Tensor tensor;
  RowAuthor author = RowAuthor::this_rank;
  ParameterPlacement placement = {};
  // False: the data-parallel ranks hold different values (an expert, or a part of a sharded tensor).
  bool replicated = true;
  // Returns the current main gradient; null: the parameter never has one. Called on any thread that runs a
  // backward. It may take the GIL: the caller must not hold a lock that a thread with the GIL may wait for.
  std::function<MainGradient()> main_gradient = {};
  UnreducedSource gradient_source = UnreducedSource::accumulator;
};

// A module as the model lists it; the root's name is empty. `identity` is the key under which forward calls
// of the module are reported (in C++ the address of the module); never dereferenced.
struct WatchedModule {
  std::string name;
  int vpp_stage = 0;
  const void* identity = nullptr;
  std::optional<bool> causal = {};  // the module's `is_causal`; unset: it has no such attribute
  bool embeds = false;              // an embedding: its weight is a lookup table, not a linear map
};

struct WatchedModel {
  std::vector<WatchedParameter> parameters;
  std::vector<WatchedModule> modules;
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// What a program has given to be watched: values, taken down in watch().
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gradmon {

// Which rank of its groups writes what this rank has of a parameter.
enum class Author : std::uint8_t {
  self,
  self_before_reduction,  // only the unreduced gradient; another rank writes the rest
  another,
};

// What a rank has of a parameter.
struct Scope {
  enum class Part : std::uint8_t { whole, replica, shard };
  Part part = Part::whole;  // replica: others have the same
  int index = 0;            // of the shard
  int count = 1;
};

// What a parameter's gradients are added to in place of its own (Megatron's `main_grad`).
struct MainGradient {
  at::Tensor tensor;         // undefined: none
  bool by_a_kernel = false;  // that leaves no gradient of its own: what the parameter is given is garbage
};

// A parameter as the model lists it, frozen ones included (they have weights
// only). A tensor listed again under another name is watched once, under the
// first of its names that is selected.
struct WatchedParameter {
  std::string name;
  int vpp_stage = 0;
  at::Tensor tensor;
  Author author = Author::self;
  Scope scope = {};
  // As it is now; null: it has none. Called on any thread that runs a backward, with no
  // lock held that a thread with the interpreter's could wait for.
  std::function<MainGradient()> main_gradient = {};
};

// A module as the model lists it; the root's name is empty. `identity` is what
// whoever sees a forward names it by (the module's address, in C++); never
// dereferenced.
struct WatchedModule {
  std::string name;
  int vpp_stage = 0;
  const void* identity = nullptr;
  std::optional<bool> causal = {};  // what it says of its mask (is_causal, attn_mask_type); none: nothing
  bool embeds = false;              // its weight is a table of vectors, no linear map
};

struct WatchedModel {
  std::vector<WatchedParameter> parameters;
  std::vector<WatchedModule> modules;
};

}  // namespace gradmon

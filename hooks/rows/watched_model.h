// SPDX-License-Identifier: Apache-2.0
// The parameters and modules that the program passed to watch(), and the values that it passes itself.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "control/vocabulary.h"

namespace gradmon {

// A JSON object with the key "scope" (whole, replica, shard, piece, partial, local) and what tells where the
// value belongs, as scopes.json has it (writers/FORMAT.md). Null: nothing is known. Shared, because
// thousands of rows have the same.
using ScopeText = std::shared_ptr<const std::string>;

inline ScopeText make_scope(std::string json) { return std::make_shared<const std::string>(std::move(json)); }

// A watched parameter. Copies share it. Any thread may read it while no other changes it.
class HeldTensor {
 public:
  HeldTensor() : HeldTensor(at::Tensor()) {}
  HeldTensor(at::Tensor tensor) : place_(std::make_shared<const at::Tensor>(std::move(tensor))) {}
  // `tensor` is in `owner`, an object of the program. There is no reference more to the tensor itself:
  // torch.utils.swap_tensors(), by which Module.to() moves DTensors, refuses a tensor that has others. After
  // a swap this is what the owner has now.
  HeldTensor(const std::shared_ptr<void>& owner, const at::Tensor& tensor) : place_(owner, &tensor) {}

  const at::Tensor& operator*() const { return *place_; }
  const at::Tensor* operator->() const { return place_.get(); }

 private:
  std::shared_ptr<const at::Tensor> place_;
};

// The rank that writes the rows of a parameter that several ranks of a parallel group hold.
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

// A run of the elements of a flattened tensor.
struct ElementRun {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

// The tensor that forward and backward use in place of a sharded parameter (FSDP).
struct UnshardedParameter {
  at::Tensor tensor;       // undefined: there is none now
  at::Tensor accumulated;  // the gradient that the framework keeps outside `tensor.grad`; undefined: none
};

// How a framework spreads a parameter over ranks. Constant.
struct ParameterSharding {
  // Names the unit that gathers its parameters at once, as announced by HookSet::gathered().
  const void* unit = nullptr;
  // The unsharded parameter at the moment. Null: forward uses the parameter itself. Any thread; takes the
  // GIL: the caller must not hold a lock that a thread with the GIL may wait for.
  std::function<UnshardedParameter()> unsharded = {};
  // The parameter's run in the unsharded tensor and its shape, if that tensor holds several parameters.
  std::optional<ElementRun> unsharded_run = {};
  std::vector<std::int64_t> unsharded_sizes = {};
  // The parameter's run in the tensor that the optimizer holds, if that tensor holds several parameters.
  std::optional<ElementRun> run = {};
  // The scope of the gradient before reduction; the scope of the gradient after it, the weights and the
  // moments. For tensors that have no scope of their own.
  ScopeText unreduced_scope = {}, scope = {};
  std::string no_unreduced = {};  // why the gradient before reduction is never seen; "": it may be
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
  HeldTensor tensor;
  RowAuthor author = RowAuthor::this_rank;
  ParameterPlacement placement = {};
  // False: the data-parallel ranks hold different values (an expert, or a part of a sharded tensor).
  bool replicated = true;
  // Returns the current main gradient; null: the parameter never has one. Called on any thread that runs a
  // backward. It may take the GIL: the caller must not hold a lock that a thread with the GIL may wait for.
  std::function<MainGradient()> main_gradient = {};
  std::shared_ptr<const ParameterSharding> sharding = {};  // null: not sharded by FSDP
  // If the parameter has post-accumulate hooks, in which frameworks reduce gradients, puts `accumulated` in
  // front of them, and returns what takes it off. Returns null if it has none. Null: none are possible (C++,
  // torch 1.13). Training thread; takes the GIL. `accumulated` is called without the GIL.
  std::function<std::function<void()>(std::function<void()> accumulated)> hook_first = {};
  UnreducedSource gradient_source = UnreducedSource::accumulator;
};

// The author, if this rank leaves replicas to other ranks: of these parameters it writes grad_unreduced only.
inline RowAuthor effective_author(const WatchedParameter& parameter, bool leaves_replicas) {
  const bool leaves = leaves_replicas && parameter.replicated && parameter.author == RowAuthor::this_rank;
  return leaves ? RowAuthor::this_rank_unreduced_only : parameter.author;
}

// A module as the model lists it; the root's name is empty. `identity` is the key under which forward calls
// of the module are reported (in C++ the address of the module); never dereferenced.
struct WatchedModule {
  std::string name;
  int vpp_stage = 0;
  const void* identity = nullptr;
  std::optional<bool> causal = {};  // the module's `is_causal`; unset: it has no such attribute
  bool embeds = false;              // an embedding: its weight is a lookup table, not a linear map
  // The scope of plain tensors among its inputs, outputs and their gradients.
  ScopeText scope = {};
  bool within_compiled = false;  // its calls are within compiled code, where no hook sees them
};

struct ModelNames;  // target_names.h

struct WatchedModel {
  std::vector<WatchedParameter> parameters;
  std::vector<WatchedModule> modules;
  // Set by keep_names(): a plan's hooks attach without making them again. Null: they are made where needed.
  std::shared_ptr<const ModelNames> names = {};
};

// A value that the program passes itself, without a hook.
struct TappedValue {
  Kind kind = Kind::actv;
  std::string name;  // in the rows, unchanged
  at::Tensor tensor;
  int micro_step = 0;
  std::string why;       // the reason why the value has no tensor; "": it has one
  ScopeText scope = {};  // the program's scope for it; null: the tensor's scope, if it has one
};

// True if a program may pass values of this kind: the kinds with the statistics of one tensor.
constexpr bool can_be_tapped(Kind kind) { return kind <= Kind::param_updated; }

}  // namespace gradmon

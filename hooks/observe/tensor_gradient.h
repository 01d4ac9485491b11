// SPDX-License-Identifier: Apache-2.0
// Reads the gradient of a tensor that is not a parameter when it arrives in backward.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "hooks/observe/forward_listener.h"
#include "hooks/observe/graph_node.h"
#include "hooks/rows/watched_model.h"

namespace gradmon {

// The place in the graph where a tensor's gradient will arrive, as of now; later writes to the tensor do not
// change it. Keeps neither the tensor nor its graph alive.
struct GradientSource {
  enum class Kind : std::uint8_t {
    none,       // the tensor requires no gradient
    node,       // a node of the graph made it
    leaf,       // it is in no graph (yet)
    parameter,  // a parameter of the model; GradientHooks reads its gradient
  };
  Kind kind = Kind::none;
  WeakNodePointer node;
  std::size_t output = 0;  // of the node
  std::optional<c10::weak_intrusive_ptr<c10::TensorImpl>> leaf;

  static GradientSource of(const at::Tensor& tensor);  // `leaf` for a parameter
  bool is(const GradientSource& other) const;          // same place; false if no gradient is required

  // The node, or the leaf's accumulator. Null if it is gone, or if the leaf has no accumulator yet; a
  // leaf gets one when the first operation that uses it has run.
  NodePointer find() const;
};

// An edge of the graph by which a module passes gradients to its inputs: output `number` of the node's
// backward.
struct InnerEdge {
  NodePointer from;
  std::size_t number = 0;
};

// The sequence number that autograd will give to the next node made on this thread.
std::uint64_t next_node();

// For each source, the edges into it from nodes that were made since `first` (a next_node() of this thread)
// and that lead to the outputs. The sum of their gradients is the source's gradient through this forward. A
// gradient outside this forward, such as a residual's, comes by other edges. Visits each such node once.
std::vector<std::vector<InnerEdge>> inner_edges(const std::vector<GradientSource>& sources,
                                                const ForwardTensors& outputs, std::uint64_t first);

// Any thread. A whole gradient is read by a pre-hook of the node that made the tensor, or of the leaf's
// accumulator; it is never a tensor hook. The gradient by some edges is read by post-hooks of the nodes
// where these edges start. A hook dies with the graph, or is removed if the graph outlives its use. The
// lifetime of the graph is unknown, so a hook body must not keep a tensor alive.
class TensorGradients {
 public:
  // Called on the thread that runs the backward, once per pass; noexcept. `gradient` is defined. `scope`: of
  // a sum of gradients unwrapped from wrappers (DTensor); else null.
  using Body = std::function<void(const at::Tensor& gradient, const ScopeText& scope)>;
  // Called instead of a Body, on the same thread, with the reason why the gradients cannot be added;
  // noexcept.
  using OnFailure = std::function<void(const std::string& why)>;

  explicit TensorGradients(const WatchedModel& model);
  // Removes all hooks.
  ~TensorGradients();
  TensorGradients(const TensorGradients&) = delete;
  TensorGradients& operator=(const TensorGradients&) = delete;

  GradientSource source_of(const at::Tensor& tensor) const;
  // Does nothing if source.find() is null. Watch a leaf after the code that uses it has run, because the
  // leaf has no accumulator before.
  void watch(const GradientSource& source, Body body);
  // Reads the sum of the gradients by the edges: when all have arrived, or at the latest when the source
  // has its whole gradient. Does nothing without edges.
  void watch_edges(const GradientSource& into, std::vector<InnerEdge> edges, Body body, OnFailure on_failure);

  // Training thread, at step boundaries. No backward may run through the watched graphs then.
  void begin_step() noexcept;
  // Removes the hooks of leaves, of nodes whose gradient has arrived, and of earlier steps. Other hooks stay
  // for a gradient that arrives late.
  void end_step() noexcept;

 private:
  class PreHook;   // a hook before a node
  class PostHook;  // a hook after a node
  class EdgeSum;
  struct Hooked {
    WeakNodePointer node;
    // The hook, while the node has it.
    const PreHook* before = nullptr;
    const PostHook* after = nullptr;
    bool leaf = false;
    std::uint64_t step = 0;
  };

  void add_pre_hook_to(const NodePointer& node, std::unique_ptr<PreHook> hook, bool leaf);
  void add_post_hook_to(const NodePointer& node, std::unique_ptr<PostHook> hook);
  // Call it with mutex_ held. Sometimes forgets the hooks that have died with their graphs: a step may never
  // end.
  void forget_dead_hooks();
  // Removes the hooks for which condition(hooked, whether its gradient has arrived) is true.
  template <typename Condition>
  void remove_hooks(Condition&& condition) noexcept;

  const std::unordered_set<const void*> parameters_;

  std::mutex mutex_;
  // Guarded by mutex_, like the nodes' lists of hooks.
  std::vector<Hooked> hooked_;
  std::vector<std::weak_ptr<EdgeSum>> sums_;  // of this step
  std::uint64_t step_ = 0;
  std::size_t forget_at_ = 0;  // size of hooked_ at the next forgetting
};

// A pipeline that splits the backward computes the gradients of weights in a separate pass, which visits
// nodes again, partly with sums that are not their gradients. In such a pass a gradient that has already
// arrived is not read again. Any thread.
void begin_weight_pass() noexcept;
void end_weight_pass() noexcept;

// Returns true if the forward that just returned these outputs is part of a graph.
bool requires_gradient(const ForwardTensors& outputs);

}  // namespace gradmon

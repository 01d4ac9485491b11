// SPDX-License-Identifier: Apache-2.0
// Reads the gradient of a tensor that is not a parameter when it arrives in backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "hooks/names/watched_model.h"
#include "hooks/observe/forward_entry.h"
#include "hooks/observe/gradient_source.h"
#include "hooks/observe/inner_edges.h"

namespace gradmon {

// Any thread. For a whole gradient, a hook is put before the node that made the tensor, or before the
// leaf's accumulator; it is not one of the tensor's own hooks. For the gradient by some edges, a hook is
// put after each node that they come from. A hook dies with the graph, or is removed if the graph
// outlives its use. Since that time is unknown, a hook body keeps no tensor alive.
class TensorGradients {
 public:
  // Called on the thread that runs the backward, once per pass; noexcept. `gradient` is defined.
  using Body = std::function<void(const at::Tensor& gradient)>;

  explicit TensorGradients(const WatchedModel& model);
  // Removes all hooks.
  ~TensorGradients();
  TensorGradients(const TensorGradients&) = delete;
  TensorGradients& operator=(const TensorGradients&) = delete;

  GradientSource source_of(const at::Tensor& tensor) const;
  // Does nothing for a source that is gone or needs no hook. Call it for a leaf after the code that uses
  // the leaf has run, because the leaf has no accumulator before.
  void watch(const GradientSource& source, Body body);
  // Reads the sum of the gradients by the edges: when all have arrived, or at the latest when the source
  // has its whole gradient. Does nothing without edges.
  void watch_edges(const GradientSource& into, std::vector<InnerEdge> edges, Body body);

  // Training thread, at step boundaries. No backward may run through those graphs.
  void begin_step() noexcept;
  // Removes the hooks of leaves, of nodes whose gradient has arrived, and of earlier steps. Others stay
  // for a gradient that arrives late.
  void end_step() noexcept;

 private:
  class Before;  // a hook before a node
  class After;   // a hook after a node
  class Sum;
  struct Hooked {
    std::weak_ptr<torch::autograd::Node> node;
    // The hook, while the node has it.
    const Before* before = nullptr;
    const After* after = nullptr;
    bool leaf = false;
    std::uint64_t step = 0;
  };

  void put_before(const std::shared_ptr<torch::autograd::Node>& node, std::unique_ptr<Before> hook,
                  bool leaf);
  void put_after(const std::shared_ptr<torch::autograd::Node>& node, std::unique_ptr<After> hook);
  // condition(hooked, whether its gradient has come)
  template <typename Condition>
  void take_off(Condition&& condition) noexcept;

  const std::unordered_set<const void*> parameters_;

  std::mutex mutex_;
  // Guarded by mutex_, as are the lists of hooks that are added to.
  std::vector<Hooked> hooked_;
  std::vector<std::weak_ptr<Sum>> sums_;  // of this step
  std::uint64_t step_ = 0;
};

// Whether the forward that just returned these outputs is part of a graph.
bool requires_gradient(const ForwardTensors& outputs);

}  // namespace gradmon

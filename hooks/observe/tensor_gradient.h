// SPDX-License-Identifier: Apache-2.0
// Sees the gradient of a tensor that is no parameter as it arrives in backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "hooks/observe/forward_entry.h"
#include "hooks/observe/gradient_source.h"
#include "hooks/observe/inner_edges.h"
#include "hooks/names/watched_model.h"

namespace gradmon {

// Any thread. Of a whole gradient a hook sits before the node that made the tensor, or
// the leaf's accumulator, and is none of the tensor's own hooks; of what comes by some
// edges, one after each node that they come from. It goes with the graph, or is taken
// off where the graph outlives its use; as nobody knows when that is, a body holds
// nothing that must not live on, tensors least of all.
class TensorGradients {
 public:
  // On the thread that runs the backward, once a pass; noexcept. `gradient` is defined.
  using Body = std::function<void(const at::Tensor& gradient)>;

  explicit TensorGradients(const WatchedModel& model);
  // Takes all hooks off.
  ~TensorGradients();
  TensorGradients(const TensorGradients&) = delete;
  TensorGradients& operator=(const TensorGradients&) = delete;

  GradientSource source_of(const at::Tensor& tensor) const;
  // Does nothing for a source that is gone, or that needs no hook of ours. A leaf
  // after what uses it has run: it has no accumulator before.
  void watch(const GradientSource& source, Body body);
  // The sum of what comes by the edges, as soon as all have brought theirs or, at the
  // latest, when the source has its whole gradient. Does nothing where there is no edge.
  void watch_edges(const GradientSource& into, std::vector<InnerEdge> edges, Body body);

  // Training thread, at boundaries; no backward runs through those graphs.
  void begin_step() noexcept;
  // Takes the hooks off leaves, off nodes whose gradient has come, and those of
  // earlier steps: what is awaited still is let know of a gradient that comes late.
  void end_step() noexcept;

 private:
  class Before;  // the node: a hook with all its gradients
  class After;   // with all that it gives
  class Sum;
  struct Hooked {
    std::weak_ptr<torch::autograd::Node> node;
    // One of them, while the node has it.
    const Before* before = nullptr;
    const After* after = nullptr;
    bool leaf = false;
    std::uint64_t step = 0;
  };

  void put_before(const std::shared_ptr<torch::autograd::Node>& node, std::unique_ptr<Before> hook, bool leaf);
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

// Whether a forward that gave these outputs just now is part of a graph.
bool requires_gradient(const ForwardTensors& outputs);

}  // namespace gradmon

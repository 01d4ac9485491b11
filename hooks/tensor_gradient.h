// SPDX-License-Identifier: Apache-2.0
// Sees the gradient of a tensor that is no parameter as it arrives in backward.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <vector>

#include "hooks/forward_entry.h"
#include "hooks/watched_model.h"

namespace torch::autograd {
struct Node;
}

namespace gradmon {

// Where a tensor's gradient will pass: what the tensor is now, whatever is written
// into it later. Keeps neither the tensor nor its graph alive.
struct GradientSource {
  enum class Sort : std::uint8_t {
    none,       // the tensor requires no gradient
    node,       // it was made by one
    leaf,       // it is in no graph, perhaps yet
    parameter,  // passed over: its gradient is seen otherwise
  };
  Sort sort = Sort::none;
  std::weak_ptr<torch::autograd::Node> node;
  std::size_t output = 0;  // of the node
  std::optional<c10::weak_intrusive_ptr<c10::TensorImpl>> leaf;
};

// Any thread. A hook sits before the node that made the tensor, or the leaf's
// accumulator, and is none of the tensor's own hooks. It goes with the graph, or
// is taken off where the graph outlives its use; as nobody knows when that is, a
// body holds nothing that must not live on, tensors least of all.
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

  // Training thread, at boundaries; no backward runs through those graphs.
  void begin_step() noexcept;
  // Takes the hooks off leaves, off nodes whose gradient has come, and those of
  // earlier steps: what is awaited still is let know of a gradient that comes late.
  void end_step() noexcept;

 private:
  class Hook;
  struct Hooked {
    std::weak_ptr<torch::autograd::Node> node;
    const Hook* hook;  // while the node has it
    bool leaf;
    std::uint64_t step;
  };

  template <typename Condition>
  void take_off(Condition&& condition) noexcept;

  const std::unordered_set<const void*> parameters_;

  std::mutex mutex_;
  // Guarded by mutex_, as are the lists of hooks that are added to.
  std::vector<Hooked> hooked_;
  std::uint64_t step_ = 0;
};

// Whether a forward that gave these outputs just now is part of a graph.
bool requires_gradient(const ForwardTensors& outputs);

}  // namespace gradmon

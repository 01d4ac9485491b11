// SPDX-License-Identifier: Apache-2.0
// A post-hook of the node that accumulates a parameter's gradient.
#pragma once

#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <functional>

#include "hooks/observe/graph_node.h"

namespace gradmon {

// Training thread, while no backward runs through the node. Keeps the node alive, because a parameter holds
// its accumulator only weakly.
class AccumulatorHook {
 public:
  // `inputs`: the gradients that the node received. Called after the accumulation, on any thread that runs a
  // backward.
  using Body = std::function<void(const torch::autograd::variable_list& inputs)>;
  // The place among the post-hooks that the node has when the hook is attached.
  enum class Order : bool { first, last };

  AccumulatorHook() = default;
  ~AccumulatorHook() { detach(); }
  AccumulatorHook(const AccumulatorHook&) = delete;
  AccumulatorHook& operator=(const AccumulatorHook&) = delete;

  // Detaches from the earlier node first.
  void attach(NodePointer accumulator, Order order, Body body);
  void detach() noexcept;
  // Null while detached.
  const NodePointer& accumulator() const { return accumulator_; }

 private:
  NodePointer accumulator_;
  std::uintptr_t key_ = 0;
};

}  // namespace gradmon

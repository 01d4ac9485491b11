// SPDX-License-Identifier: Apache-2.0
// Autograd's graph. Pointers to its nodes: std::shared_ptr in torch 1.13 and 2.6, c10::intrusive_ptr in 2.13.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace torch::dynamo::autograd {
class CompiledNodeArgs;
}

namespace gradmon {

using NodePointer = std::decay_t<decltype(std::declval<const at::Tensor&>().grad_fn())>;

namespace detail {

template <typename Pointer>
struct WeakPointerOf;
template <typename Node>
struct WeakPointerOf<std::shared_ptr<Node>> {
  using type = std::weak_ptr<Node>;
};
template <typename Node>
struct WeakPointerOf<c10::intrusive_ptr<Node>> {
  using type = c10::weak_intrusive_ptr<Node>;
};

}  // namespace detail

template <typename Node, typename... Arguments>
NodePointer make_node(Arguments&&... arguments) {
  if constexpr (std::is_constructible_v<NodePointer, std::shared_ptr<Node>>) {
    return std::make_shared<Node>(std::forward<Arguments>(arguments)...);
  } else {
    return c10::make_intrusive<Node>(std::forward<Arguments>(arguments)...);
  }
}

// True while a backward pass runs on this thread.
inline bool within_backward() { return torch::autograd::get_current_graph_task_nodes_in_graph() != nullptr; }

// Does not keep the node alive.
class WeakNodePointer {
 public:
  WeakNodePointer() = default;
  WeakNodePointer(const NodePointer& node) : node_(node) {}  // implicit, as in std::weak_ptr

  // Null if the node is gone.
  NodePointer lock() const { return node_ ? node_->lock() : NodePointer(); }
  bool expired() const { return !node_ || node_->expired(); }

 private:
  std::optional<detail::WeakPointerOf<NodePointer>::type> node_;
};

// An autograd hook that compiled autograd (torch 2.x) ignores. Without the override, torch's base class
// throws in the program's backward. The function of the base class is const since 2.7, non-const in
// earlier 2.x and missing in 1.13, so at most one of the two forms is an override.
template <typename Hook>
class IgnoredByCompiledAutograd : public Hook {
 public:
  virtual void compiled_args(torch::dynamo::autograd::CompiledNodeArgs&) {}
  virtual void compiled_args(torch::dynamo::autograd::CompiledNodeArgs&) const {}
};

}  // namespace gradmon

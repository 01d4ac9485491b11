// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "hooks/observe/graph_node.h"

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

}  // namespace gradmon

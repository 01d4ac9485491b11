// SPDX-License-Identifier: Apache-2.0
// By which edges of the graph a module gives its inputs their gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "hooks/observe/forward_entry.h"
#include "hooks/observe/gradient_source.h"

namespace gradmon {

// Gradient `number` of those that the node gives.
struct InnerEdge {
  std::shared_ptr<torch::autograd::Node> from;
  std::size_t number = 0;
};

// What autograd will number the next node that this thread makes.
std::uint64_t next_node();

// For each source the edges into it from nodes that were made since `first`, a
// next_node() of this thread, and that gave the outputs. Their gradients together are
// the source's through this forward: what reaches it otherwise (a residual) comes by
// other edges. Visits each such node once.
std::vector<std::vector<InnerEdge>> inner_edges(const std::vector<GradientSource>& sources,
                                                const ForwardTensors& outputs, std::uint64_t first);

}  // namespace gradmon

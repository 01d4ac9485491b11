// SPDX-License-Identifier: Apache-2.0
// The edges of the graph by which a module passes gradients to its inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "hooks/observe/forward_entry.h"
#include "hooks/observe/gradient_source.h"

namespace gradmon {

// Output `number` of the node's backward.
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

}  // namespace gradmon

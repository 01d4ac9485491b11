// SPDX-License-Identifier: Apache-2.0
#include "hooks/observe/inner_edges.h"

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <map>
#include <unordered_set>
#include <utility>

namespace gradmon {

using torch::autograd::Node;

std::uint64_t next_node() { return at::sequence_number::peek(); }

std::vector<std::vector<InnerEdge>> inner_edges(const std::vector<GradientSource>& sources,
                                                const ForwardTensors& outputs, std::uint64_t first) {
  std::vector<std::vector<InnerEdge>> found(sources.size());
  std::multimap<std::pair<const Node*, std::size_t>, std::size_t> ends;  // to the index in `sources`
  std::vector<NodePointer> held;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto end = sources[i].find();
    if (!end) continue;
    ends.emplace(std::pair(end.get(), sources[i].output), i);
    held.push_back(end);
  }
  std::unordered_set<const Node*> seen;
  std::vector<NodePointer> next;
  const auto visit = [&](const NodePointer& node) {
    if (node && node->sequence_nr() >= first && node->num_outputs() > 0 && seen.insert(node.get()).second)
      next.push_back(node);
  };
  for (const ForwardTensors::Element& output : outputs.elements) {
    if (output.tensor.requires_grad()) visit(output.tensor.grad_fn());
  }
  while (!next.empty()) {
    const NodePointer node = std::move(next.back());
    next.pop_back();
    for (std::size_t number = 0; number < node->num_outputs(); ++number) {
      const auto& edge = node->next_edge(number);
      const auto [from, to] = ends.equal_range({edge.function.get(), edge.input_nr});
      for (auto end = from; end != to; ++end) found[end->second].push_back({node, number});
      if (from == to) visit(edge.function);
    }
  }
  return found;
}

}  // namespace gradmon

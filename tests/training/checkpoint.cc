// SPDX-License-Identifier: Apache-2.0
#include "tests/training/checkpoint.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <utility>

#include "hooks/observe/graph_node.h"

namespace gradmon {
namespace {

using Segment = std::function<at::Tensor(const at::Tensor&)>;

class Recomputation : public torch::autograd::Node {
 public:
  Recomputation(Segment segment, const at::Tensor& x)
      : Node(torch::autograd::collect_next_edges(x)), segment_(std::move(segment)), x_(x, false) {}

  std::string name() const override { return "gradmon::Recomputation"; }
  void release_variables() override { x_.reset_data(); }

 private:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    const at::AutoGradMode again(true);
    at::Tensor x = x_.unpack();
    x = x.detach().requires_grad_(x.requires_grad());
    const at::Tensor output = segment_(x);
    if (output.requires_grad()) torch::autograd::backward({output}, {std::move(gradients[0])});
    return {x.grad()};
  }

  const Segment segment_;
  torch::autograd::SavedVariable x_;
};

}  // namespace

at::Tensor checkpoint(Segment segment, const at::Tensor& x) {
  at::Tensor output;
  {
    const at::NoGradGuard no_graph;
    output = segment(x);
  }
  if (!at::GradMode::is_enabled()) return output;
  torch::autograd::create_gradient_edge(output, make_node<Recomputation>(std::move(segment), x));
  return output;
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// A model that reports its forwards, in part under reentrant checkpointing.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/linspace.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

#include <functional>

#include "gradmon/observe.h"
#include "hooks/hook_set.h"
#include "tests/hooks/fake_stream.h"

namespace gradmon {

using Forward = std::function<at::Tensor(const at::Tensor&)>;

// Reentrant checkpointing: runs `body` without gradients, and again in the backward.
class Checkpoint : public torch::autograd::Function<Checkpoint> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const Forward& body) {
    context->save_for_backward({x});
    bodies().push_back(body);
    context->saved_data["body"] = static_cast<std::int64_t>(bodies().size() - 1);
    return body(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const Forward body = bodies().at(static_cast<std::size_t>(context->saved_data["body"].toInt()));
    const at::Tensor x = context->get_saved_variables().at(0).detach().requires_grad_();
    at::Tensor y;
    {
      const at::AutoGradMode enabled(true);
      y = body(x);
    }
    torch::autograd::backward({y}, {gradients.at(0)});
    return {x.grad(), at::Tensor()};
  }

 private:
  static std::vector<Forward>& bodies() {
    static std::vector<Forward> all;
    return all;
  }
};

// Two linear layers with an in-place ReLU between them. fc2 runs twice.
struct ObservedModel : torch::nn::Module {
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
  torch::nn::ReLU relu{nullptr};
  bool checkpoint = false;

  ObservedModel() {
    fc1 = register_module("fc1", torch::nn::Linear(4, 6));
    relu = register_module("relu", torch::nn::ReLU(torch::nn::ReLUOptions(true)));
    fc2 = register_module("fc2", torch::nn::Linear(6, 6));
    const c10::NoGradGuard no_grad;
    for (at::Tensor& p : parameters()) p.copy_(at::linspace(-0.7, 0.9, p.numel()).reshape(p.sizes()));
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor hidden = observe(*relu)(observe(*fc1)(x));
    const auto twice = [this](const at::Tensor& h) { return observe(*fc2)(observe(*fc2)(h)); };
    return checkpoint ? Checkpoint::apply(hidden, Forward(twice)) : twice(hidden);
  }
};

inline WatchedModel watched(torch::nn::Module& model) {
  WatchedModel watched;
  for (const auto& item : model.named_parameters())
    watched.parameters.push_back({item.key(), 0, item.value()});
  watched.modules.push_back({"", 0, &model});
  for (const auto& item : model.named_modules("", false))
    watched.modules.push_back({item.key(), 0, item.value().get()});
  return watched;
}

inline at::Tensor observed_input(std::int64_t rows = 5) {
  return at::linspace(-1, 1.3, rows * 4).reshape({rows, 4});
}

// A fixture of TEST_CASE_METHOD.
struct ObservedRun {
  ObservedModel model;
  FakeStream stream;
};

}  // namespace gradmon

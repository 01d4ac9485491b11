// SPDX-License-Identifier: Apache-2.0
// Two layers and gradient descent on plain tensors, without torch::nn.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/linspace.h>
#include <c10/core/GradMode.h>

#include "hooks/hook_set.h"
#include "tests/hooks/fake_stream.h"

namespace gradmon {

inline double norm_of(const at::Tensor& tensor) {
  return tensor.detach().to(at::kDouble).norm().item<double>();
}
inline bool near(double a, double b) { return std::fabs(a - b) <= 1e-6 * std::fabs(b); }

struct TinyModel {
  std::vector<WatchedParameter> parameters;

  TinyModel() {
    add("fc1.weight", at::linspace(-1, 1, 8 * 16).reshape({8, 16}));
    add("fc1.bias", at::linspace(-0.3, 0.4, 16));
    add("fc2.weight", at::linspace(0.5, -1, 16 * 4).reshape({16, 4}));
    add("fc2.bias", at::linspace(0.1, 0.2, 4));
  }

  const at::Tensor& operator[](std::size_t i) { return *parameters[i].tensor; }

  at::Tensor loss(double scale = 1) {
    const at::Tensor& like = (*this)[0];
    const at::Tensor input =
        at::linspace(-1, 1, 5 * 8, like.scalar_type()).reshape({5, 8}).to(like.device()) * scale;
    const at::Tensor hidden = at::addmm((*this)[1], input, (*this)[0]).tanh();
    return at::addmm((*this)[3], hidden, (*this)[2]).pow(2).mean();
  }

  void backward(double scale = 1) { loss(scale).backward(); }

  void descend() {
    const c10::NoGradGuard no_grad;
    for (WatchedParameter& parameter : parameters) {
      if (parameter.tensor->grad().defined()) parameter.tensor->sub_(parameter.tensor->grad(), 0.1);
    }
  }

  // The gradients stay defined, as by default in torch 1.13.
  void zero_grad() {
    const c10::NoGradGuard no_grad;
    for (WatchedParameter& parameter : parameters) {
      if (parameter.tensor->grad().defined()) parameter.tensor->mutable_grad().zero_();
    }
  }

  void drop_grad() {
    for (WatchedParameter& parameter : parameters) parameter.tensor->mutable_grad().reset();
  }

 private:
  void add(const char* name, const at::Tensor& tensor) {
    parameters.push_back({name, 0, tensor.detach().clone().requires_grad_()});
  }
};

// Fixtures of TEST_CASE_METHOD. `settings`: a function that returns those of the hooks.
struct TinyRun {
  TinyModel model;
  FakeStream stream;
};
template <HookSettings (*settings)()>
struct HookedModel : TinyRun {
  HookSet hooks{settings(), {model.parameters, {}}, stream};
};

}  // namespace gradmon

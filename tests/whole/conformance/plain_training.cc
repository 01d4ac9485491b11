// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/conformance/plain_training.h"

#include <ATen/ops/relu.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <gradmon/observe.h>

#include "tests/whole/conformance/sine_values.h"

namespace gradmon {
namespace {

constexpr double kRate = 0.01;

at::Tensor loss_of(const at::Tensor& out, int micro_batches) { return out.pow(2).mean() / micro_batches; }

// Runs forward and backward module by module and keeps each value.
void expect_activations(PlainNet& net, const at::Tensor& x, int step, int micro, int micro_batches,
                        ExpectedValues& expected) {
  const at::Tensor h1 = net.fc1->forward(x);
  const at::Tensor h2 = at::relu(h1);
  const at::Tensor h3 = net.fc2->forward(h2);
  for (const at::Tensor& h : {h1, h2, h3}) h.retain_grad();
  loss_of(h3, micro_batches).backward();
  const auto add = [&](const char* name, const at::Tensor& value) {
    expected[{"actv", name, step, micro}] = value.detach().clone();
    if (value.grad().defined()) expected[{"actv_grad", name, step, micro}] = value.grad().clone();
  };
  add("model.input", x), add("fc1.input", x), add("fc1.output", h1), add("act.input", h1),
      add("act.output", h2), add("fc2.input", h2), add("fc2.output", h3), add("model.output", h3);
}

// AdamW's moments, computed as torch does, but apart from its optimizer.
struct Moments {
  at::Tensor exp_avg, exp_avg_sq;
  void update(const at::Tensor& gradient) {
    if (!exp_avg.defined()) {
      exp_avg = at::zeros_like(gradient);
      exp_avg_sq = at::zeros_like(gradient);
    }
    exp_avg.mul_(0.9).add_(gradient, 1 - 0.9);
    exp_avg_sq.mul_(0.999).addcmul_(gradient, gradient, 1 - 0.999);
  }
};

}  // namespace

PlainNet::PlainNet(bool in_place)
    : fc1(register_module("fc1", torch::nn::Linear(8, 16))),
      fc2(register_module("fc2", torch::nn::Linear(16, 4))),
      act(register_module("act", torch::nn::ReLU(torch::nn::ReLUOptions(in_place)))) {
  const c10::NoGradGuard no_grad;
  double phase = 0;
  for (at::Tensor& parameter : parameters())
    parameter.copy_(sine_values(parameter.sizes(), phase += 0.3) * 0.2);
}

at::Tensor PlainNet::forward(const at::Tensor& x) { return observe(*fc2)(observe(*act)(observe(*fc1)(x))); }

PlainTraining::PlainTraining(int micro_batches, bool in_place)
    : micro_batches_(micro_batches),
      model_(in_place),
      optimizer_(model_.parameters(), torch::optim::AdamWOptions(kRate)) {}

at::Tensor PlainTraining::batch(int step, int micro) const {
  return sine_values({5, 8}, step * 1.1 + micro * 0.4);
}

void PlainTraining::halve_gradients() {
  const c10::NoGradGuard no_grad;
  for (at::Tensor& parameter : model_.parameters()) parameter.mutable_grad().mul_(0.5);
}

void PlainTraining::step(Monitor& monitor) {
  optimizer_.zero_grad();
  for (int micro = 0; micro < micro_batches_; ++micro) {
    loss_of(observe(model_)(batch(step_, micro)), micro_batches_).backward();
  }
  halve_gradients();
  monitor.step(optimizer_);
  ++step_;
}

ExpectedValues PlainTraining::expected(int micro_batches, int steps) {
  PlainTraining training(micro_batches);
  ExpectedValues expected;
  std::map<std::string, Moments> moments;
  for (int step = 0; step < steps; ++step) {
    training.optimizer_.zero_grad();
    std::map<std::string, at::Tensor> before;
    for (int micro = 0; micro < micro_batches; ++micro) {
      expect_activations(training.model_, training.batch(step, micro), step, micro, micro_batches, expected);
      for (const auto& item : training.model_.named_parameters()) {
        const at::Tensor gradient = item.value().grad().clone();
        const at::Tensor own = before.count(item.key()) != 0 ? gradient - before[item.key()] : gradient;
        expected[{"micro_grad", item.key(), step, micro}] = own;
        expected[{"grad_unreduced", item.key(), step, 0}] = gradient;
        before[item.key()] = gradient;
      }
    }
    training.halve_gradients();
    for (const auto& item : training.model_.named_parameters()) {
      Moments& moment = moments[item.key()];
      expected[{"grad_reduced", item.key(), step, 0}] = item.value().grad().clone();
      expected[{"param_origin", item.key(), step, 0}] = item.value().detach().clone();
      if (step > 0) {
        expected[{"exp_avg", item.key(), step, 0}] = moment.exp_avg.clone();
        expected[{"exp_avg_sq", item.key(), step, 0}] = moment.exp_avg_sq.clone();
      }
      moment.update(item.value().grad());
    }
    training.optimizer_.step();
    for (const auto& item : training.model_.named_parameters()) {
      expected[{"param_updated", item.key(), step, 0}] = item.value().detach().clone();
    }
  }
  return expected;
}

}  // namespace gradmon

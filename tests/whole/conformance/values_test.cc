// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <gradmon/monitor.h>
#include <gradmon/observe.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "tests/support/catch.h"
#include "tests/whole/conformance/one_rank_job.h"

namespace gradmon {
namespace {

// --- A small training job with fixed weights and inputs, and the values that gradmon
// must collect from it, computed with plain torch.

// fc1 (8 to 16), ReLU in place or not, fc2 (16 to 4).
struct PlainNet : torch::nn::Module {
  explicit PlainNet(bool in_place);
  at::Tensor forward(const at::Tensor& x);

  torch::nn::Linear fc1, fc2;
  torch::nn::ReLU act;
};

// Kind (the prefix of the file, or "micro_grad"), name, step, micro step.
using ValueKey = std::tuple<std::string, std::string, int, int>;
// The tensor behind each expected row.
using ExpectedValues = std::map<ValueKey, at::Tensor>;

class PlainTraining {
 public:
  explicit PlainTraining(int micro_batches, bool in_place = false);

  PlainNet& model() { return model_; }
  torch::optim::AdamW& optimizer() { return optimizer_; }
  // One training step. Halves the gradients between reduction and update, so that the
  // gradients before and after reduction differ.
  void step(Monitor& monitor);

  // The values of `steps` steps of the same training without gradmon.
  static ExpectedValues expected(int micro_batches, int steps);

 private:
  at::Tensor batch(int step, int micro) const;
  void halve_gradients();

  const int micro_batches_;
  PlainNet model_;
  torch::optim::AdamW optimizer_;
  int step_ = 0;
};

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

// --- The CSV files: every kind and op equals the value that plain torch computes in double. Python's
// rows/test_oracle.py has many models and the other kinds; tests/hooks has the formulas of L2 features and of
// rows of several collectives.

constexpr int kSteps = 4;
constexpr double kEps = 0.05;

MonitorOptions of_micro_batches(int count) {
  MonitorOptions options;
  options.grad_acc_steps = count;
  return options;
}

// Trains kSteps steps under a config, in static mode.
struct CollectedRun : OneRankJob {
  explicit CollectedRun(const std::string& kinds, int micro_batches = 1, bool in_place = false)
      : OneRankJob(
            R"("ops": ["norm", "min", "max", "mean", "nans", "zeros", "absmax"], "eps": 0.05, "ndigits": 17, )" +
                kinds,
            false, of_micro_batches(micro_batches)) {
    PlainTraining training(micro_batches, in_place);
    monitor->watch(training.model(), training.optimizer());
    for (int i = 0; i < kSteps; ++i) training.step(*monitor);
    monitor->stop();
  }
};

double reference(const std::string& op, const at::Tensor& tensor) {
  const at::Tensor x = tensor.to(at::kDouble);
  if (op == "norm") return x.norm().item<double>();
  if (op == "min") return x.min().item<double>();
  if (op == "max") return x.max().item<double>();
  if (op == "mean") return x.mean().item<double>();
  if (op == "nans") return x.isnan().sum().item<double>();
  if (op == "absmax") return x.abs().max().item<double>();
  return x.abs().lt(kEps).to(at::kDouble).mean().item<double>();
}

// To a millionth of the value; for a mean, which may cancel out, to a millionth of the mean magnitude.
bool equals(const std::string& op, const at::Tensor& tensor, double found) {
  const double wanted = reference(op, tensor);
  const double scale = op == "mean" ? tensor.to(at::kDouble).abs().mean().item<double>() : std::fabs(wanted);
  return std::fabs(found - wanted) <= 1e-6 * scale;
}

std::string shape_of(const at::Tensor& tensor) {
  std::string text = "[";
  for (std::int64_t i = 0; i < tensor.dim(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(tensor.size(i));
  return text + "]";
}

// Requires exactly the rows expected under `key`, with equal values.
void compare(CollectedRun& collected, const std::string& prefix, const std::string& key, int micro_batches) {
  const ExpectedValues expected = PlainTraining::expected(micro_batches, kSteps);
  std::set<ValueKey> seen;
  for (const CsvRow& row : collected.rows(prefix)) {
    const int micro = row.count("micro_step") != 0 ? std::stoi(row.at("micro_step")) : 0;
    const ValueKey at{key, row.at("name"), std::stoi(row.at("step")), micro};
    CAPTURE(prefix, row.at("name"), row.at("step"), micro);
    REQUIRE(expected.count(at) == 1);
    REQUIRE(seen.insert(at).second);
    const at::Tensor& tensor = expected.at(at);
    for (const char* op : {"norm", "min", "max", "mean", "nans", "zeros", "absmax"}) {
      CAPTURE(op, row.at(op));
      REQUIRE(equals(op, tensor, std::stod(row.at(op))));
    }
    REQUIRE(row.at("shape") == shape_of(tensor));
    REQUIRE(row.at("dtype") == "torch.float32");
    REQUIRE(row.at("vpp_stage") == "0");
  }
  std::size_t expected_rows = 0;
  for (const auto& [at, tensor] : expected) expected_rows += std::get<0>(at) == key ? 1 : 0;
  CAPTURE(prefix);
  REQUIRE(expected_rows > 0);
  REQUIRE(seen.size() == expected_rows);
}

TEST_CASE("all kinds at once equal plain torch and no row is dropped") {
  for (const int micro_batches : {1, 3}) {
    CollectedRun collected(
        R"("wg_distribution": true, "param_distribution": true, "mv_distribution": true,
           "xy_distribution": true, "all_xy": true, "mg_direction": true)",
        micro_batches);
    for (const char* prefix : {"grad_unreduced", "grad_reduced", "actv", "actv_grad"})
      compare(collected, prefix, prefix, micro_batches);
    REQUIRE(collected.monitor->status().ranks.front().dropped == 0);
    REQUIRE(collected.monitor->status().ranks.front().error.empty());
    if (micro_batches > 1) continue;  // Sums of gradients would be rounded in another order.
    for (const char* prefix : {"param_origin", "param_updated", "exp_avg", "exp_avg_sq"})
      compare(collected, prefix, prefix, 1);
  }
}

TEST_CASE("gradients per micro batch equal the increment of each backward pass") {
  CollectedRun collected(R"("wg_distribution": true, "monitor_mbs_grad": true)", 3);
  compare(collected, "grad_unreduced", "micro_grad", 3);
}

TEST_CASE("activations around an in-place module equal those of its out-of-place form") {
  CollectedRun collected(R"("xy_distribution": true, "all_xy": true)", 1, true);
  compare(collected, "actv", "actv", 1);
  compare(collected, "actv_grad", "actv_grad", 1);
}

TEST_CASE("forward_only and backward_only collect one direction only") {
  CollectedRun forward(R"("xy_distribution": true, "all_xy": true, "forward_only": true)");
  compare(forward, "actv", "actv", 1);
  CHECK(forward.rows("actv_grad").empty());
  CollectedRun backward(R"("xy_distribution": true, "all_xy": true, "backward_only": true)");
  compare(backward, "actv_grad", "actv_grad", 1);
  CHECK(backward.rows("actv").empty());
}

}  // namespace
}  // namespace gradmon

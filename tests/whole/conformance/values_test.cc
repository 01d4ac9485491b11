// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cosine_similarity.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_svdvals.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/xlogy.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <gradmon/monitor.h>
#include <gradmon/observe.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "control/debian_version.h"
#include "tests/hooks/gloo_ranks.h"
#include "tests/whole/conformance/one_rank_job.h"
#include GRADMON_CATCH_HEADER

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

// --- The CSV files: every kind and op equals the value that plain torch computes in
// double.

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

TEST_CASE("gradients before and after reduction equal those of plain torch") {
  for (const int micro_batches : {1, 3}) {
    CollectedRun collected(R"("wg_distribution": true)", micro_batches);
    compare(collected, "grad_unreduced", "grad_unreduced", micro_batches);
    compare(collected, "grad_reduced", "grad_reduced", micro_batches);
  }
}

TEST_CASE("gradients per micro batch equal the increment of each backward pass") {
  CollectedRun collected(R"("wg_distribution": true, "monitor_mbs_grad": true)", 3);
  compare(collected, "grad_unreduced", "micro_grad", 3);
}

TEST_CASE("weights and moments around the update equal those of plain torch") {
  CollectedRun collected(R"("param_distribution": true, "mv_distribution": true)");
  for (const char* prefix : {"param_origin", "param_updated", "exp_avg", "exp_avg_sq"})
    compare(collected, prefix, prefix, 1);
}

TEST_CASE("activations and their gradients equal those of plain torch") {
  for (const int micro_batches : {1, 2}) {
    CollectedRun collected(R"("xy_distribution": true, "all_xy": true)", micro_batches);
    compare(collected, "actv", "actv", micro_batches);
    compare(collected, "actv_grad", "actv_grad", micro_batches);
  }
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

TEST_CASE("mg_direction equals the share of equal signs of gradient and momentum") {
  CollectedRun collected(R"("mg_direction": true)");
  const ExpectedValues expected = PlainTraining::expected(1, kSteps);
  std::size_t rows = 0;
  for (const CsvRow& row : collected.rows("other")) {
    const int step = std::stoi(row.at("step"));
    const at::Tensor gradient = expected.at({"grad_reduced", row.at("name"), step, 0});
    const at::Tensor momentum = expected.at({"exp_avg", row.at("name"), step, 0});
    const double agree = (gradient.sign() * momentum.sign()).to(at::kDouble).mean().item<double>();
    CAPTURE(row.at("name"), step);
    CHECK(std::fabs(std::stod(row.at("mg_direction")) - (agree + 1) / 2) < 1e-9);
    CHECK(row.at("norm").empty());
    ++rows;
  }
  CHECK(rows == 4 * (kSteps - 1));  // no momentum before the first step
}

TEST_CASE("stable rank and largest singular value equal those of a singular value decomposition") {
  CollectedRun collected(R"("recording_l2_features": true, "l2_targets": {"linear_hook": []})");
  const ExpectedValues expected = PlainTraining::expected(1, kSteps);
  std::size_t rows = 0;
  for (const CsvRow& row : collected.rows("linear_hook")) {
    const std::string name = row.at("name").substr(0, row.at("name").find('.'));
    const at::Tensor weight =
        expected.at({"param_origin", name + ".weight", std::stoi(row.at("step")), 0}).to(at::kDouble);
    const double largest = at::linalg_svdvals(weight).max().item<double>();
    CAPTURE(row.at("name"), row.at("step"));
    CHECK(row.at("name") == name + ".linear");
    CHECK(std::fabs(std::stod(row.at("kernel_norm")) / largest - 1) < 1e-3);
    CHECK(std::fabs(std::stod(row.at("sr")) / (weight.norm().item<double>() / largest) - 1) < 1e-3);
    ++rows;
  }
  CHECK(rows == 2 * kSteps);
}

TEST_CASE("all kinds at once equal plain torch and no row is dropped") {
  CollectedRun collected(
      R"("wg_distribution": true, "param_distribution": true, "mv_distribution": true,
         "xy_distribution": true, "all_xy": true, "mg_direction": true)");
  for (const char* prefix :
       {"grad_unreduced", "grad_reduced", "param_origin", "param_updated", "exp_avg", "actv", "actv_grad"})
    compare(collected, prefix, prefix, 1);
  REQUIRE(collected.monitor->status().ranks.front().dropped == 0);
  REQUIRE(collected.monitor->status().ranks.front().error.empty());
}

// --- The CSV files: the L2 features equal the values that plain torch computes in double.

constexpr std::int64_t kBatches = 2, kLength = 7, kHeads = 3, kSize = 4, kExperts = 5;

struct Core : torch::nn::Module {
  static at::Tensor forward(const at::Tensor& q, const at::Tensor& k) { return q * k; }
};

struct Net : torch::nn::Module {
  std::shared_ptr<Core> core{register_module("core", std::make_shared<Core>())};
  torch::nn::Linear router{register_module("router", torch::nn::Linear(kSize, kExperts))};

  Net() {
    const at::NoGradGuard no_grad;
    router->weight.copy_(sine_values(router->weight.sizes(), 0.2));
    router->bias.copy_(sine_values(router->bias.sizes(), 0.9));
  }
  at::Tensor forward(const at::Tensor& q, const at::Tensor& k) {
    return observe(*router)(observe(*core)(q, k));
  }
};

struct Inputs {
  explicit Inputs(int step)
      : q(sine_values({kLength, kBatches, kHeads, kSize}, step)),
        k(sine_values({kLength, kBatches, kHeads, kSize}, step + 0.5)) {}
  at::Tensor q, k;  // s,b,h,d
};

std::vector<CsvRow> collect(const std::string& causal, const std::string& prefix) {
  OneRankJob job(R"("recording_l2_features": true, "ndigits": 17, "l2_targets": {"attention_hook": ["core"],
                    "moe_router_weight_hook": ["router"], "moe_router_logit_hook": ["router"]},
                    "sa_causal": )" +
                 causal);
  Net net;
  torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(0));
  job.monitor->watch(net, optimizer);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const Inputs inputs(step);
    observe(net)(inputs.q, inputs.k).sum().backward();
    job.monitor->step(optimizer);
  }
  return job.rows(prefix);
}

at::Tensor weights_of_attention(const Inputs& inputs, bool causal) {
  const at::Tensor q = inputs.q.to(at::kDouble).permute({1, 2, 0, 3});
  const at::Tensor k = inputs.k.to(at::kDouble).permute({1, 2, 3, 0});
  at::Tensor scores = at::matmul(q, k) / std::sqrt(static_cast<double>(kSize));
  if (causal) {
    const double hidden = -std::numeric_limits<double>::infinity();
    scores = scores + at::full({kLength, kLength}, hidden, at::kDouble).triu(1);
  }
  return scores.softmax(-1);
}

double entropy(const at::Tensor& p) { return -at::xlogy(p, p).sum(-1).mean().item<double>(); }

bool equal(const std::string& found, double wanted) {
  return std::fabs(std::stod(found) - wanted) <= 1e-6 * std::fabs(wanted);
}

TEST_CASE("entropy and largest weight of attention equal those of the full attention matrix") {
  for (const bool causal : {false, true}) {
    const auto rows = collect(causal ? "true" : "false", "attention_hook");
    REQUIRE(rows.size() == 3);
    for (int step = 0; step < 3; ++step) {
      const CsvRow& row = rows[static_cast<std::size_t>(step)];
      const at::Tensor weights = weights_of_attention(Inputs(step), causal);
      CAPTURE(causal, step);
      CHECK(row.at("name") == "core.attention");
      CHECK(row.at("step") == std::to_string(step));
      CHECK(row.at("micro_step") == "0");
      CHECK(equal(row.at("entropy"), entropy(weights)));
      CHECK(equal(row.at("softmax_max"), weights.amax(-1).mean().item<double>()));
    }
  }
}

TEST_CASE("a router's cosine equals the mean over all pairs of experts") {
  const at::Tensor experts = Net().router->weight.detach().to(at::kDouble).t();
  double sum = 0;
  int pairs = 0;
  for (std::int64_t i = 0; i < experts.size(0); ++i) {
    for (std::int64_t j = 0; j < i; ++j, ++pairs)
      sum += at::cosine_similarity(experts[i], experts[j], 0).item<double>();
  }
  const auto rows = collect("true", "moe_router_weight_hook");
  REQUIRE(rows.size() == 3);
  for (const CsvRow& row : rows) CHECK(equal(row.at("cosine"), sum / pairs));
}

TEST_CASE("the entropy of a router's logits equals the mean over all tokens") {
  const auto rows = collect("true", "moe_router_logit_hook");
  REQUIRE(rows.size() == 3);
  Net net;
  net.to(at::kDouble);
  for (int step = 0; step < 3; ++step) {
    const Inputs inputs(step);
    const at::Tensor logits = net.router->forward((inputs.q * inputs.k).to(at::kDouble));
    CHECK(equal(rows[static_cast<std::size_t>(step)].at("entropy"), entropy(logits.softmax(-1))));
  }
}

// --- The CSV rows of collectives: several calls from one place in a step are combined by
// each op's own rule.

at::Tensor first(int step) { return at::arange(6, at::kFloat) - 2.5 + step; }
at::Tensor second(int step) { return at::arange(3, at::kFloat) * 0.1 - step; }

// Makes three steps, each with two calls of all_reduce from one place and one of broadcast.
std::vector<CsvRow> communicate(const std::string& keys) {
  OneRankJob job(R"("ops": ["norm", "min", "max", "mean", "nans"], "ndigits": 17, )" + keys);
  torch::nn::Linear model(1, 1);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0));
  job.monitor->watch(*model, optimizer);
  run_ranks(1, [&](GlooGroup& group) {
    for (int step = 0; step < 3; ++step) {
      for (const at::Tensor& tensor : {first(step), second(step)}) group.all_reduce({tensor})->wait();
      group.broadcast({first(step)})->wait();
      job.monitor->step(optimizer);
    }
  });
  return job.rows("other");
}

void compare(const CsvRow& row, const at::Tensor& all) {
  const at::Tensor x = all.to(at::kDouble);
  const auto near = [&](const char* op, const at::Tensor& wanted) {
    CAPTURE(row.at("name"), row.at("step"), op);
    const double value = wanted.item<double>();
    CHECK(std::fabs(std::stod(row.at(op)) - value) <= 1e-6 * std::fabs(value));
  };
  near("norm", x.norm());
  near("min", x.min());
  near("max", x.max());
  near("mean", x.mean());
  CHECK(row.at("nans") == "0");
  CHECK(row.at("mg_direction").empty());
}

bool starts_with(const std::string& text, const std::string& with) {
  return text.compare(0, with.size(), with) == 0;
}

TEST_CASE("the row of several collectives from one place has the statistics of all their elements") {
  const auto rows = communicate(R"("cc_distribution": {"enable": true, "cc_pre_hook": true})");
  REQUIRE(rows.size() == 3 * 4);
  for (const char* direction : {"pre", "post"}) {
    int reduced = 0, shared = 0;
    for (const CsvRow& row : rows) {
      const int step = std::stoi(row.at("step"));
      if (starts_with(row.at("name"), std::string("all_reduce.") + direction + "_0@")) {
        compare(row, at::cat({first(step), second(step)}));
        ++reduced;
      } else if (starts_with(row.at("name"), std::string("broadcast.") + direction + "_0@")) {
        compare(row, first(step));
        ++shared;
      }
    }
    CAPTURE(direction);
    CHECK(reduced == 3);
    CHECK(shared == 3);
  }
}

TEST_CASE("inputs of collectives are collected only with cc_pre_hook") {
  const auto rows = communicate(R"("cc_distribution": {"enable": true})");
  REQUIRE(rows.size() == 3 * 2);
  for (const CsvRow& row : rows) CHECK(row.at("name").find(".post_") != std::string::npos);
}

}  // namespace
}  // namespace gradmon

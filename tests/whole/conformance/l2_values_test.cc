// SPDX-License-Identifier: Apache-2.0
// The CSV files: the L2 features equal the values that plain torch computes in double.
#include <ATen/ops/cosine_similarity.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/xlogy.h>
#include <gradmon/observe.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <limits>

#include "control/debian_version.h"
#include "tests/whole/conformance/one_rank_job.h"
#include "tests/whole/conformance/sine_values.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

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

}  // namespace
}  // namespace gradmon

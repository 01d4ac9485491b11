// SPDX-License-Identifier: Apache-2.0
#include "hooks/probes/l2_probe.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_svdvals.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <torch/nn/module.h>

#include "gradmon/observe.h"
#include "hooks/hook_set.h"
#include "hooks/stats/l2_features.h"
#include "tests/hooks/fake_stream.h"
#include "tests/hooks/observed_model.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

// The inputs are Q and K, as in an attention.
struct CoreAttention : torch::nn::Module {
  at::Tensor forward(const at::Tensor& q, const at::Tensor& k) { return (q * k).sum(3); }
};

struct Net : torch::nn::Module {
  std::shared_ptr<CoreAttention> core = register_module("core", std::make_shared<CoreAttention>());
  torch::nn::Linear lin = register_module("lin", torch::nn::Linear(16, 8));
  torch::nn::Linear gate = register_module("gate", torch::nn::Linear(16, 4));
  at::Tensor q = at::randn({20, 2, 3, 16}), k = at::randn({20, 2, 3, 16});
  bool reports_core = false;

  at::Tensor forward(const at::Tensor& x) {
    if (reports_core) attention(*core, k, q, Causal::no);
    attention(*lin, q, k, Causal::no);
    attention("free", q, k, Causal::yes);
    const at::Tensor attended = observe(*core)(q, k);
    return observe(*lin)(x).sum() + observe(*gate)(x).sum() + attended.sum();
  }
};

struct L2Training {
  Net net;
  FakeStream stream;
  HookSettings settings;

  L2Training() { settings.l2.emplace(); }

  // Trains one step. Returns the report on the config's targets.
  MatchReport train(int micro_batches = 1) {
    settings.grad_acc_steps = micro_batches;
    HookSet hooks(settings, watched(net), stream);
    hooks.begin_step(Step{3}, kInCollected);
    for (int i = 0; i < micro_batches; ++i) observe(net)(at::ones({5, 16})).backward();
    hooks.before_update({});
    hooks.after_update({});
    hooks.end_step();
    CHECK_FALSE(hooks.failure());
    not_applicable = hooks.not_applicable();
    return hooks.matches();
  }
  double value(std::size_t record, Column column) const {
    return stream.records.at(record).values[static_cast<std::size_t>(column)];
  }
  std::uint64_t not_applicable = 0;
};

using Names = std::vector<std::string>;

TEST_CASE("attention_hook measures inputs 0 and 1 of the listed modules in each micro step") {
  L2Training training;
  training.settings.l2->attention = {"core"};
  CHECK(training.train(2).unmatched.empty());
  REQUIRE(training.stream.targets(Kind::attention_hook) == Names{"0:core.attention", "0:core.attention"});
  CHECK(training.stream.records[0].micro_step == 0);
  CHECK(training.stream.records[1].micro_step == 1);
  const auto features = attention_features(training.net.q, training.net.k, AxisOrder::sbhd, Causal::yes);
  CHECK(training.value(0, Column::entropy) == features->entropy);
  CHECK(training.value(1, Column::softmax_max) == features->softmax_max);
  CHECK(training.stream.records[0].mask == (bit_of(Column::entropy) | bit_of(Column::softmax_max)));
}

TEST_CASE("the causal mask is the config's and with auto the module's own") {
  L2Training training;
  training.settings.l2->attention = {"core"};
  training.settings.l2->causal = CausalMask::no;
  training.settings.l2->order = AxisOrder::bshd;
  training.train();
  const auto features = attention_features(training.net.q, training.net.k, AxisOrder::bshd, Causal::no);
  CHECK(training.value(0, Column::entropy) == features->entropy);

  WatchedModel model = watched(training.net);
  REQUIRE(model.modules.at(1).name == "core");
  model.modules[1].causal = false;
  training.settings.l2->causal = CausalMask::automatic;
  HookSet hooks(training.settings, model, training.stream);
  hooks.begin_step(Step{0}, kInCollected);
  observe(training.net)(at::ones({5, 16}));
  hooks.end_step();
  CHECK(training.value(1, Column::entropy) == features->entropy);
}

TEST_CASE("a module without Q and K is counted as not applicable") {
  L2Training training;
  training.settings.l2->attention = {"gate"};
  training.train();
  CHECK(training.stream.records.empty());
  CHECK(training.not_applicable == 1);
}

TEST_CASE("an attention that the program reports in a forward is recorded for its module") {
  L2Training training;
  training.settings.l2->attention = {"lin"};
  training.train();
  REQUIRE(training.stream.targets(Kind::attention_hook) == Names{"0:lin.attention"});
  CHECK(training.value(0, Column::entropy) ==
        attention_features(training.net.q, training.net.k, AxisOrder::sbhd, Causal::no)->entropy);
  CHECK(training.not_applicable == 0);
}

TEST_CASE("inputs are not taken for Q and K in a micro step in which the program reports Q and K") {
  L2Training training;
  training.settings.l2->attention = {"core"};
  HookSet hooks(training.settings, watched(training.net), training.stream);
  hooks.begin_step(Step{0}, kInCollected);
  observe(training.net)(at::ones({5, 16}));
  training.net.reports_core = true;
  observe(training.net)(at::ones({5, 16}));
  hooks.end_step();
  REQUIRE(training.stream.targets(Kind::attention_hook) == Names{"0:core.attention", "0:core.attention"});
  const auto of_inputs = attention_features(training.net.q, training.net.k, AxisOrder::sbhd, Causal::yes);
  const auto reported = attention_features(training.net.k, training.net.q, AxisOrder::sbhd, Causal::no);
  CHECK(training.value(0, Column::entropy) == of_inputs->entropy);
  CHECK(training.value(1, Column::entropy) == reported->entropy);
  CHECK(training.stream.records[1].micro_step == 1);
}

TEST_CASE("an attention reported by name is recorded if the name is listed or no attention is") {
  L2Training training;
  training.train();
  CHECK(training.stream.targets(Kind::attention_hook) == Names{"0:free.attention"});
  CHECK(training.value(0, Column::entropy) ==
        attention_features(training.net.q, training.net.k, AxisOrder::sbhd, Causal::yes)->entropy);
  training.settings.l2->attention = {"free"};
  training.train();
  CHECK(training.stream.records.size() == 2);
}

TEST_CASE("forwards are observed only during collected steps") {
  L2Training training;
  HookSet hooks(training.settings, watched(training.net), training.stream);
  CHECK_FALSE(forward_entry::open());
  hooks.begin_step(Step{0}, kInCollected);
  CHECK(forward_entry::open());
  hooks.end_step();
  CHECK_FALSE(forward_entry::open());
}

TEST_CASE("linear_hook measures a module's weight once in a step and before the update") {
  L2Training training;
  training.settings.l2->attention = {"none"};
  training.settings.l2->linear = Names{"lin"};
  training.train(2);
  const at::Tensor weight = training.net.lin->weight.detach().to(at::kDouble);
  const double norm = at::linalg_svdvals(weight)[0].item<double>();
  REQUIRE(training.stream.targets(Kind::linear_hook) == Names{"0:lin.linear"});
  CHECK(std::fabs(training.value(0, Column::kernel_norm) / norm - 1) < 1e-6);
  CHECK(std::fabs(training.value(0, Column::sr) * norm / weight.norm().item<double>() - 1) < 1e-6);
}

TEST_CASE("an empty linear_hook list means every module with a 2-D weight and no list means no module") {
  L2Training training;
  training.settings.l2->linear.emplace();
  training.train();
  CHECK(training.stream.targets(Kind::linear_hook) == Names{"0:lin.linear", "0:gate.linear"});
  training.stream.records.clear();
  training.settings.l2->linear.reset();
  training.train();
  CHECK(training.stream.targets(Kind::linear_hook).empty());
}

TEST_CASE("a router's weight and logits are measured") {
  L2Training training;
  training.settings.l2->router_weight = {"gate"};
  training.settings.l2->router_logit = {"gate"};
  training.settings.l2->attention = {"none"};
  training.train();
  REQUIRE(training.stream.targets(Kind::moe_router_weight_hook) == Names{"0:gate.router"});
  REQUIRE(training.stream.targets(Kind::moe_router_logit_hook) == Names{"0:gate.router"});
  CHECK(training.value(0, Column::entropy) ==
        router_entropy(training.net.gate->forward(at::ones({5, 16})))->value);
  CHECK(training.value(1, Column::cosine) == router_cosine(training.net.gate->weight)->value);
}

TEST_CASE("L2 targets without a match are reported with the nearest name or the reason") {
  L2Training training;
  training.settings.l2->attention = {"cores"};
  training.settings.l2->linear = Names{"core"};
  const MatchReport report = training.train();
  REQUIRE(report.unmatched.size() == 2);
  CHECK(report.unmatched[0].pattern == "cores");
  CHECK(report.unmatched[0].suggestions.at(0) == "core");
  CHECK(report.unmatched[1].error == "the module has no 2-D parameter `weight` or `wg`");
}

TEST_CASE("a freed weight has no row and the other kinds and weights keep theirs") {
  L2Training training;
  training.settings.l2->linear.emplace();
  HookSet hooks(training.settings, watched(training.net), training.stream);
  hooks.begin_step(Step{0}, kInCollected);
  observe(training.net)(at::ones({5, 16})).backward();
  training.net.lin->weight.storage().set_nbytes(0);
  hooks.before_update({});
  hooks.end_step();
  CHECK_FALSE(hooks.failure());
  CHECK(training.stream.targets(Kind::linear_hook) == Names{"0:gate.linear"});
  CHECK(training.stream.targets(Kind::attention_hook) == Names{"0:free.attention"});
  CHECK(hooks.not_applicable() == 1);
}

TEST_CASE("a parameter that another rank writes has no linear row") {
  L2Training training;
  training.settings.l2->linear = Names{"lin"};
  WatchedModel model = watched(training.net);
  for (WatchedParameter& parameter : model.parameters) parameter.author = RowAuthor::another_rank;
  HookSet hooks(training.settings, model, training.stream);
  hooks.begin_step(Step{0}, kInCollected);
  hooks.before_update({});
  hooks.end_step();
  CHECK(training.stream.records.empty());
}

}  // namespace
}  // namespace gradmon

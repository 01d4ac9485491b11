// SPDX-License-Identifier: Apache-2.0
#include "hooks/activations/l2_probe.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_svdvals.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <cmath>

#include "control/debian_version.h"
#include "gradmon/observe.h"
#include "hooks/stats/attention_features.h"
#include "hooks/hook_set.h"
#include "hooks/stats/router_features.h"
#include "tests/hooks/fake_stream.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

// Q and K in, as an attention has it.
struct CoreAttention : torch::nn::Module {
  at::Tensor forward(const at::Tensor& q, const at::Tensor& k) { return (q * k).sum(3); }
};

struct Net : torch::nn::Module {
  std::shared_ptr<CoreAttention> core = register_module("core", std::make_shared<CoreAttention>());
  torch::nn::Linear lin = register_module("lin", torch::nn::Linear(16, 8));
  torch::nn::Linear gate = register_module("gate", torch::nn::Linear(16, 4));
  at::Tensor q = at::randn({20, 2, 3, 16}), k = at::randn({20, 2, 3, 16});
  bool tells_of_core = false;

  at::Tensor forward(const at::Tensor& x) {
    if (tells_of_core) attention(*core, k, q, Causal::no);
    attention(*lin, q, k, Causal::no);
    attention("free", q, k, Causal::yes);
    const at::Tensor attended = observe(*core)(q, k);
    return observe(*lin)(x).sum() + observe(*gate)(x).sum() + attended.sum();
  }
};

WatchedModel watched(Net& net) {
  WatchedModel model;
  for (const auto& parameter : net.named_parameters())
    model.parameters.push_back({parameter.key(), 0, parameter.value()});
  for (const auto& module : net.named_modules(std::string(), false))
    model.modules.push_back({module.key(), 0, module.value().get()});
  model.modules.push_back({"", 0, &net});
  return model;
}

struct Job {
  Net net;
  FakeStream stream;
  HookSettings settings;

  Job() { settings.l2.emplace(); }

  // One step of so many micro batches; what it says of its targets.
  MatchReport train(int micro_batches = 1) {
    settings.grad_acc_steps = micro_batches;
    HookSet hooks(settings, watched(net), stream);
    hooks.begin_step(Step{3}, HookSet::Collect::yes);
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

TEST_CASE("attention_hook measures inputs 0 and 1 of the modules named in each micro step") {
  Job job;
  job.settings.l2->attention = {"core"};
  CHECK(job.train(2).unmatched.empty());
  REQUIRE(job.stream.targets(Kind::attention_hook) == Names{"0:core.attention", "0:core.attention"});
  CHECK(job.stream.records[0].micro_step == 0);
  CHECK(job.stream.records[1].micro_step == 1);
  const auto features = attention_features(job.net.q, job.net.k, AxisOrder::sbhd, Causal::yes);
  CHECK(job.value(0, Column::entropy) == features->entropy);
  CHECK(job.value(1, Column::softmax_max) == features->softmax_max);
  CHECK(job.stream.records[0].mask == (bit_of(Column::entropy) | bit_of(Column::softmax_max)));
}

TEST_CASE("the mask is what the config says and else what the module says of itself") {
  Job job;
  job.settings.l2->attention = {"core"};
  job.settings.l2->causal = CausalMask::no;
  job.settings.l2->order = AxisOrder::bshd;
  job.train();
  const auto features = attention_features(job.net.q, job.net.k, AxisOrder::bshd, Causal::no);
  CHECK(job.value(0, Column::entropy) == features->entropy);

  WatchedModel model = watched(job.net);
  model.modules[0].causal = false;
  REQUIRE(model.modules[0].name == "core");
  job.settings.l2->causal = CausalMask::automatic;
  HookSet hooks(job.settings, model, job.stream);
  hooks.begin_step(Step{0}, HookSet::Collect::yes);
  observe(job.net)(at::ones({5, 16}));
  hooks.end_step();
  CHECK(job.value(1, Column::entropy) == features->entropy);
}

TEST_CASE("a module without Q and K is counted as not applicable") {
  Job job;
  job.settings.l2->attention = {"gate"};
  job.train();
  CHECK(job.stream.records.empty());
  CHECK(job.not_applicable == 1);
}

TEST_CASE("an attention told of from within a forward is that of its module") {
  Job job;
  job.settings.l2->attention = {"lin"};
  job.train();
  REQUIRE(job.stream.targets(Kind::attention_hook) == Names{"0:lin.attention"});
  CHECK(job.value(0, Column::entropy) ==
        attention_features(job.net.q, job.net.k, AxisOrder::sbhd, Causal::no)->entropy);
  CHECK(job.not_applicable == 0);
}

TEST_CASE("inputs are not taken for Q and K in a micro step in which a program tells of them") {
  Job job;
  job.settings.l2->attention = {"core"};
  HookSet hooks(job.settings, watched(job.net), job.stream);
  hooks.begin_step(Step{0}, HookSet::Collect::yes);
  observe(job.net)(at::ones({5, 16}));
  job.net.tells_of_core = true;
  observe(job.net)(at::ones({5, 16}));
  hooks.end_step();
  REQUIRE(job.stream.targets(Kind::attention_hook) == Names{"0:core.attention", "0:core.attention"});
  const auto of_inputs = attention_features(job.net.q, job.net.k, AxisOrder::sbhd, Causal::yes);
  const auto told = attention_features(job.net.k, job.net.q, AxisOrder::sbhd, Causal::no);
  CHECK(job.value(0, Column::entropy) == of_inputs->entropy);
  CHECK(job.value(1, Column::entropy) == told->entropy);
  CHECK(job.stream.records[1].micro_step == 1);
}

TEST_CASE("an attention told of by name is recorded where none is listed or it is") {
  Job job;
  job.train();
  CHECK(job.stream.targets(Kind::attention_hook) == Names{"0:free.attention"});
  CHECK(job.value(0, Column::entropy) ==
        attention_features(job.net.q, job.net.k, AxisOrder::sbhd, Causal::yes)->entropy);
  job.settings.l2->attention = {"free"};
  job.train();
  CHECK(job.stream.records.size() == 2);
}

TEST_CASE("nothing is listened to while no step is collected") {
  Job job;
  HookSet hooks(job.settings, watched(job.net), job.stream);
  CHECK_FALSE(forward_entry::open());
  hooks.begin_step(Step{0}, HookSet::Collect::yes);
  CHECK(forward_entry::open());
  hooks.end_step();
  CHECK_FALSE(forward_entry::open());
}

TEST_CASE("linear_hook measures the weight of modules once before the update") {
  Job job;
  job.settings.l2->attention = {"none"};
  job.settings.l2->linear = Names{"lin"};
  job.train(2);
  const at::Tensor weight = job.net.lin->weight.detach().to(at::kDouble);
  const double norm = at::linalg_svdvals(weight)[0].item<double>();
  REQUIRE(job.stream.targets(Kind::linear_hook) == Names{"0:lin.linear"});
  CHECK(std::fabs(job.value(0, Column::kernel_norm) / norm - 1) < 1e-6);
  CHECK(std::fabs(job.value(0, Column::sr) * norm / weight.norm().item<double>() - 1) < 1e-6);
}

TEST_CASE("an empty list of linear_hook means every module with a 2-D weight and none no module") {
  Job job;
  job.settings.l2->linear.emplace();
  job.train();
  CHECK(job.stream.targets(Kind::linear_hook) == Names{"0:lin.linear", "0:gate.linear"});
  job.stream.records.clear();
  job.settings.l2->linear.reset();
  job.train();
  CHECK(job.stream.targets(Kind::linear_hook).empty());
}

TEST_CASE("a router's weight and logits are measured") {
  Job job;
  job.settings.l2->router_weight = {"gate"};
  job.settings.l2->router_logit = {"gate"};
  job.settings.l2->attention = {"none"};
  job.train();
  REQUIRE(job.stream.targets(Kind::moe_router_weight_hook) == Names{"0:gate.router"});
  REQUIRE(job.stream.targets(Kind::moe_router_logit_hook) == Names{"0:gate.router"});
  CHECK(job.value(0, Column::entropy) == router_entropy(job.net.gate->forward(at::ones({5, 16})))->value);
  CHECK(job.value(1, Column::cosine) == router_cosine(job.net.gate->weight)->value);
}

TEST_CASE("L2 targets that mean nothing are named with the nearest or the reason") {
  Job job;
  job.settings.l2->attention = {"cores"};
  job.settings.l2->linear = Names{"core"};
  const MatchReport report = job.train();
  REQUIRE(report.unmatched.size() == 2);
  CHECK(report.unmatched[0].pattern == "cores");
  CHECK(report.unmatched[0].suggestions.at(0) == "core");
  CHECK(report.unmatched[1].error == "the module has no 2-D parameter `weight` or `wg`");
}

TEST_CASE("a freed weight has no row and the other kinds and weights keep theirs") {
  Job job;
  job.settings.l2->linear.emplace();
  HookSet hooks(job.settings, watched(job.net), job.stream);
  hooks.begin_step(Step{0}, HookSet::Collect::yes);
  observe(job.net)(at::ones({5, 16})).backward();
  job.net.lin->weight.storage().set_nbytes(0);
  hooks.before_update({});
  hooks.end_step();
  CHECK_FALSE(hooks.failure());
  CHECK(job.stream.targets(Kind::linear_hook) == Names{"0:gate.linear"});
  CHECK(job.stream.targets(Kind::attention_hook) == Names{"0:free.attention"});
  CHECK(hooks.not_applicable() == 1);
}

TEST_CASE("a parameter that another rank writes has no linear row") {
  Job job;
  job.settings.l2->linear = Names{"lin"};
  WatchedModel model = watched(job.net);
  for (WatchedParameter& parameter : model.parameters) parameter.author = RowAuthor::another_rank;
  HookSet hooks(job.settings, model, job.stream);
  hooks.begin_step(Step{0}, HookSet::Collect::yes);
  hooks.before_update({});
  hooks.end_step();
  CHECK(job.stream.records.empty());
}

}  // namespace
}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "runtime/collect/collection.h"

#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <algorithm>

#include "control/config/config_parser.h"
#include "control/debian_version.h"
#include "gradmon/observe.h"
#include "hooks/rows/libtorch_optimizer_state.h"
#include "runtime/collect/expected_targets.h"
#include "tests/support/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

WatchedModel watched(torch::nn::Module& model) {
  WatchedModel all;
  for (const auto& item : model.named_parameters()) all.parameters.push_back({item.key(), 0, item.value()});
  for (const auto& item : model.named_modules("", false))
    all.modules.push_back({item.key(), 0, item.value().get()});
  return all;
}

// A network whose `idle` layer and `parts` are there and never run.
struct Network : torch::nn::Module {
  torch::nn::Linear fc1 = register_module("fc1", torch::nn::Linear(4, 4));
  torch::nn::Linear idle = register_module("idle", torch::nn::Linear(4, 4));
  torch::nn::ModuleList parts = register_module("parts", torch::nn::ModuleList(torch::nn::Linear(4, 4)));
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor hidden = observe(*fc1)(x);
    tap("hidden", hidden);
    return hidden;
  }
};

// One rank's collection, step by step, under one plan.
class Steps {
 public:
  explicit Steps(const std::string& config, std::int64_t queue_capacity = 65'536)
      : collection_(settings(scratch_ / "out", queue_capacity), [](Revision, Step) {}) {
    collection_.add_model(watched(network_));
    begin_plan(config);
  }

  void begin_plan(const std::string& config) {
    Plan plan;
    plan.on = true;
    plan.config_text = config;
    auto parsed = parse_config(config, "config");
    REQUIRE(parsed);
    revision_.value += 1;
    collection_.swap({revision_, std::make_shared<const Plan>(std::move(plan)), step_},
                     std::make_shared<const Config>(std::move(parsed->config)));
  }

  void step_without_update() {
    collection_.begin_step(step_, HookSet::Collect::yes, 0);
    network_.forward(at::ones({2, 4})).sum().backward();
    collection_.end_step(0, true);
    step_.value += 1;
  }

  void step() {
    collection_.begin_step(step_, HookSet::Collect::yes, 0);
    optimizer_.zero_grad();
    network_.forward(at::ones({2, 4})).sum().backward();
    const LibtorchOptimizerState state(optimizer_);
    collection_.before_update(network_.parameters(), &state);
    optimizer_.step();
    collection_.after_update(network_.parameters(), &state);
    collection_.end_step(0, true);
    step_.value += 1;
  }

  const TargetStatus* target(const std::string& kind, const std::string& name) {
    list_ = collection_.targets();
    const auto found =
        std::find_if(list_.targets.begin(), list_.targets.end(),
                     [&](const TargetStatus& target) { return target.kind == kind && target.name == name; });
    return found == list_.targets.end() ? nullptr : &*found;
  }
  CollectingReport report() const { return collection_.report(); }

 private:
  static Collection::Settings settings(const std::filesystem::path& out, std::int64_t queue_capacity) {
    Collection::Settings made;
    made.queue_capacity = queue_capacity;
    made.directory =
        std::make_shared<RunDirectory>(out, Rank{0}, "flat", [] { return std::optional(JobIdentity{}); });
    return made;
  }

  const TemporaryDirectory scratch_;
  Network network_;
  torch::optim::SGD optimizer_{network_.parameters(), 0.1};
  Revision revision_;
  Step step_;
  TargetList list_;
  Collection collection_;
};

TEST_CASE("a row that the full queue dropped does not make its target silent") {
  Steps steps(R"({"wg_distribution": true, "targets": {"fc1": {}}, "on_overflow": "drop"})", 1);
  for (int i = 0; i < 1000 && steps.report().dropped == 0; ++i) {
    steps.step();
    CAPTURE(i);
    REQUIRE(steps.report().targets.silent == 0);
  }
  REQUIRE(steps.report().dropped > 0);
}

TEST_CASE("a module whose forward is not seen is silent and says why") {
  Steps steps(R"({"xy_distribution": true, "targets": {"idle": {}, "fc1": {}}})");
  steps.step();
  REQUIRE(steps.target("actv", "idle") != nullptr);
  CHECK(steps.target("actv", "idle")->silent_steps == 1);
  CHECK(steps.target("actv", "idle")->why == "its forward was not seen: gradmon::observe");
  CHECK(steps.target("actv_grad", "idle")->why == "not in the graph");
  CHECK(steps.target("actv", "fc1") == nullptr);
  CHECK(steps.target("actv", "fc1.output") != nullptr);
  CHECK(steps.report().targets.silent == 2);
}

TEST_CASE("a name that the program taps is unmatched until it has come") {
  Steps steps(R"({"xy_distribution": true, "targets": {"hidden": {}, "hiden": {}}})");
  CHECK(steps.report().warnings.size() == 2);
  steps.step();
  REQUIRE(steps.report().warnings.size() == 1);
  CHECK(steps.report().warnings.front().find("\"hiden\" matches nothing") == 0);
  CHECK(steps.report().targets.unmatched == 1);
  REQUIRE(steps.target("actv", "hidden.output") != nullptr);
}

TEST_CASE("a config whose names may be taps or that needs no target does not match nothing") {
  const auto possible = [](const std::string& text) {
    const auto parsed = parse_config(text, "");
    REQUIRE(parsed);
    return possible_matches(parsed->config, {{0, "fc1"}, {0, "fc1.weight"}});
  };
  CHECK(possible(R"({"wg_distribution": true, "targets": {"hidden": {}}})") == 0);
  CHECK(possible(R"({"wg_distribution": true, "targets": {"fc1": {}}})") == 2);
  CHECK(possible(R"({"xy_distribution": true, "targets": {"hidden": {}}})") == 1);
  CHECK(possible(R"({"cc_distribution": {"enable": true}, "targets": {"hidden": {}}})") == 1);
  CHECK(possible(R"({"scalars": {"loss": "log"}, "targets": {"hidden": {}}})") == 1);
}

TEST_CASE("what is tried of a config names the L2 targets without a match and nothing where no kind is on") {
  const auto tried = [](const std::string& text) {
    const auto parsed = parse_config(text, "");
    REQUIRE(parsed);
    return dry_run_target_list(parsed->config, {{0, "fc1.weight"}, {0, "fc1"}});
  };
  CHECK(tried(R"({"wg_distribution": true})").targets.size() == 2);
  CHECK(tried(R"({"monitor_mbs_grad": true})").targets.empty());
  const TargetList l2 = tried(R"({"recording_l2_features": true,
      "l2_targets": {"attention_hook": ["core"], "linear_hook": ["fc2", "fc1"]}})");
  REQUIRE(l2.unmatched.size() == 2);
  CHECK(l2.unmatched[0].pattern == "core");
  CHECK(l2.unmatched[1].nearest == std::vector<std::string>{"fc1"});
}

TEST_CASE("a dry run names parameters and modules as their rows do") {
  const auto parsed = parse_config(
      R"({"xy_distribution": true, "wg_distribution": true,
          "targets": {"decoder.layers.0.fc.weight": {}, "decoder.layers.0.fc": {}}})",
      "");
  REQUIRE(parsed);
  const TargetList list = dry_run_target_list(
      parsed->config, {{0, "decoder.layers.0.fc.weight"}, {0, "decoder.layers.0.fc", true}});
  REQUIRE(list.targets.size() == 2);
  CHECK(list.targets[0].name == "layers.0.fc.weight");
  CHECK(list.targets[1].name == "decoder.layers.0.fc");
}

TEST_CASE("of all modules those without children are expected") {
  Steps steps(R"({"xy_distribution": true, "all_xy": true, "forward_only": true})");
  CHECK(steps.target("actv", "fc1") != nullptr);
  CHECK(steps.target("actv", "parts.0") != nullptr);
  CHECK(steps.target("actv", "parts") == nullptr);
}

TEST_CASE("what an optimizer does not keep is silent and says why") {
  Steps steps(R"({"mv_distribution": true, "mg_direction": true, "targets": {"fc1.weight": {}}})");
  steps.step();
  for (const char* kind : {"exp_avg", "exp_avg_sq"}) {
    REQUIRE(steps.target(kind, "fc1.weight") != nullptr);
    CHECK(steps.target(kind, "fc1.weight")->why == "its optimizer keeps none, or no watched one has it");
  }
  REQUIRE(steps.target("other", "fc1.weight") != nullptr);
  CHECK(steps.target("other", "fc1.weight")->silent());
}

TEST_CASE("what L2 features are asked of is expected by module") {
  Steps steps(R"({"recording_l2_features": true, "l2_targets": {"attention_hook": ["idle"],
      "linear_hook": [], "moe_router_weight_hook": ["fc1"], "moe_router_logit_hook": ["idle"]}})");
  steps.step();
  REQUIRE(steps.target("attention_hook", "idle.attention") != nullptr);
  CHECK(steps.target("attention_hook", "idle.attention")->why ==
        "its forward was not seen: gradmon::observe");
  REQUIRE(steps.target("moe_router_logit_hook", "idle.router") != nullptr);
  CHECK(steps.target("moe_router_logit_hook", "idle.router")->silent());
  for (const char* name : {"fc1.linear", "idle.linear"}) {
    REQUIRE(steps.target("linear_hook", name) != nullptr);
    CHECK_FALSE(steps.target("linear_hook", name)->silent());
  }
  REQUIRE(steps.target("moe_router_weight_hook", "fc1.router") != nullptr);
  CHECK_FALSE(steps.target("moe_router_weight_hook", "fc1.router")->silent());
}

TEST_CASE("steps without update are warned of once under each plan") {
  const std::string config = R"({"wg_distribution": true, "targets": {"fc1": {}}})";
  Steps steps(config);
  for (int i = 0; i < 2; ++i) {
    CHECK(steps.report().warnings.empty());
    for (int step = 0; step < 2; ++step) steps.step_without_update();
    REQUIRE(steps.report().warnings.size() == 1);
    CHECK(steps.report().warnings.front().find("without update()") != std::string::npos);
    steps.begin_plan(config);
  }
}

TEST_CASE("a plan that is on and asks for no kind is warned of") {
  Steps nothing(R"({"monitor_mbs_grad": true})");
  REQUIRE(nothing.report().warnings.size() == 1);
  CHECK(nothing.report().warnings.front().find("enables no kind of row") != std::string::npos);
  CHECK(Steps(R"({"print_struct": true})").report().warnings.empty());
}

}  // namespace
}  // namespace gradmon

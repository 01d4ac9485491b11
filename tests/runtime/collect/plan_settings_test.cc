// SPDX-License-Identifier: Apache-2.0
#include "runtime/collect/plan_settings.h"

#include "control/config/file_content.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

Plan plan_of(const std::string& text) {
  Plan plan;
  plan.config_text = text;
  plan.config_sha256 = sha256_hex(text);
  return plan;
}

Plan plan_with_interval(int interval) {
  return plan_of("{\"step_interval\": " + std::to_string(interval) + "}");
}

TEST_CASE("the config of a plan is parsed once") {
  PlanConfigs configs("config.json");
  const auto first = configs.of(plan_with_interval(3));
  REQUIRE(first);
  CHECK((*first)->step_interval == 3);
  REQUIRE(configs.of(plan_with_interval(4)));
  CHECK(*configs.of(plan_with_interval(3)) == *first);
}

TEST_CASE("only the configs of the two plans used last are kept") {
  PlanConfigs configs("config.json");
  const auto first = configs.of(plan_with_interval(1));
  const auto second = configs.of(plan_with_interval(2));
  CHECK(*configs.of(plan_with_interval(1)) == *first);
  REQUIRE(configs.of(plan_with_interval(3)));
  CHECK(*configs.of(plan_with_interval(1)) == *first);
  CHECK(*configs.of(plan_with_interval(2)) != *second);
}

TEST_CASE("a config that the caller has parsed is not parsed again") {
  PlanConfigs configs("config.json");
  Config parsed;
  parsed.step_interval = 7;
  Plan plan = plan_of("{}");
  plan.config = std::make_shared<const Config>(parsed);
  CHECK(*configs.of(plan) == plan.config);
}

TEST_CASE("the errors of a config are given each time with the file's name") {
  PlanConfigs configs("config.json");
  for (int i = 0; i < 2; ++i) {
    const auto config = configs.of(plan_with_interval(0));
    REQUIRE_FALSE(config);
    CHECK(config.error().find("config.json:1:") == 0);
  }
}

TEST_CASE("the settings of features and collectives are those of the config") {
  const auto config = PlanConfigs("config.json").of(plan_of(R"({
    "recording_l2_features": true, "sa_order": "b,s,h,d", "sa_causal": false,
    "l2_targets": {"attention_hook": ["a"], "linear_hook": ["b"], "moe_router_weight_hook": ["c"],
                   "moe_router_logit_hook": ["d"]},
    "cc_distribution": {"enable": true, "cc_codeline": ["train.py\\[1\\]"], "cc_pre_hook": true}})"));
  REQUIRE(config);
  const HookSettings settings = to_hook_settings(**config, Revision{1});
  CHECK(settings.l2->attention == std::vector<std::string>{"a"});
  CHECK(settings.l2->linear == std::vector<std::string>{"b"});
  CHECK(settings.l2->router_weight == std::vector<std::string>{"c"});
  CHECK(settings.l2->router_logit == std::vector<std::string>{"d"});
  CHECK(settings.l2->order == AxisOrder::bshd);
  CHECK(settings.l2->causal == CausalMask::no);
  CHECK(settings.collectives.enabled);
  CHECK(settings.collectives.code_lines == std::vector<std::string>{"train.py\\[1\\]"});
  CHECK(settings.collectives.inputs);
}

}  // namespace
}  // namespace gradmon

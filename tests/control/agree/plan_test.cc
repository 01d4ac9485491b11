// SPDX-License-Identifier: Apache-2.0
#include "control/agree/plan.h"

#include "control/config/config_parser.h"
#include "control/config/file_content.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

TEST_CASE("a plan has the values of its config, the text and the text's hash") {
  const std::string text = R"({"dynamic_on": true, "step_interval": 5, "max_wait": 1.5, "epz": 1})";
  const auto source = plan_from_config(text, "c.json");
  REQUIRE(source);
  CHECK((source->plan->on && source->plan->step_interval == 5 && source->plan->max_wait == Ticks{1'500}));
  CHECK((source->plan->config_text == text && source->plan->config_sha256 == sha256_hex(text)));
  CHECK(source->unknown == std::vector<std::string>{R"(unknown key "epz" (did you mean "eps"?))"});
  CHECK(source->warnings == std::vector<std::string>{"c.json:1:59: " + source->unknown.front()});
  CHECK_FALSE(plan_from_config("{\"eps\": 0}", "c.json").has_value());
}

TEST_CASE("the plan of a parsed content has that config, and no text is parsed again") {
  FileContent content{"not JSON", {7, 8, "its hash"}};
  content.parsed = std::make_shared<const ConfigResult>(parse_config(R"({"step_interval": 9})", "c.json"));
  const auto source = plan_from_config(content, "c.json");
  REQUIRE(source);
  CHECK(source->plan->config.get() == &(*content.parsed)->config);
  CHECK((source->plan->step_interval == 9 && source->plan->config_sha256 == "its hash"));
}

}  // namespace
}  // namespace gradmon

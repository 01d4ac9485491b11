// SPDX-License-Identifier: Apache-2.0
// Checks that the fuzzer's inputs reach what they are there for.
#include "control/config/config_parser.h"
#include "control/config/config_schema.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

template <typename Part>
void check_keys(const std::string& text, const std::vector<Option<Part>>& table = options<Part>()) {
  for (const auto& option : table) {
    const std::string key(option.name);
    CAPTURE(key);
    CHECK(text.find('"' + key + "\":") != std::string::npos);
  }
}

TEST_CASE("every_key.json of the corpus is a valid config with every key") {
  const std::string text = read_text(GRADMON_CORPUS "/config_text/every_key.json");
  CHECK(parse_config(text, "every_key.json"));
  check_keys<Config>(text);
  check_keys<Config::Target>(text);
  check_keys<Config::CcDistribution>(text);
  check_keys<Config::L2Targets>(text);
  check_keys<Config::Alert>(text);
  for (const AlertRuleSchema& rule : alert_rule_schemas()) check_keys(text, rule.args);
  check_keys<Config::OnAlert>(text);
}

}  // namespace
}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "control/config/config_overlay.h"

#include "control/config/config_parser.h"
#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

Config captured(const std::string& text) {
  const auto overlaid = capture_config(text);
  REQUIRE(overlaid);
  auto parsed = parse_config(*overlaid, "c.json");
  REQUIRE(parsed);
  return parsed->config;
}

TEST_CASE("a capture's config has the keys of collect, and the other keys of the config") {
  const Config config = captured(R"({
    "targets": {"fc1": {"input": "tensor"}},
    "format": "sqlite",
    "wg_distribution": true,
    "ops": ["norm"],
    "alert": {"rules": [{"rule_name": "AnomalyNan"}]},
    "on_alert": {"collect": {"ops": ["norm", "nans"], "targets": {}, "xy_distribution": true,
                             "scalars": {"a\u002fb~\n": "log"}}, "times": 3}
  })");
  CHECK(config.targets.empty());
  CHECK(config.format == std::vector<Config::Format>{Config::Format::sqlite});
  CHECK((config.wg_distribution && config.xy_distribution));
  CHECK(config.ops == std::vector<Op>{Op::norm, Op::nans});
  CHECK(config.alert.rules.size() == 1);
  REQUIRE(config.scalars.size() == 1);
  CHECK(config.scalars[0].name == "a/b~\n");
  REQUIRE(config.on_alert);
  CHECK(config.on_alert->times == 3);
}

TEST_CASE("an empty collect changes nothing") {
  const std::string text = R"({"eps": 1e-3, "on_alert": {"collect": {}}})";
  CHECK(capture_config(text) == text);
}

TEST_CASE("collect may have as many keys as a config, unknown ones too") {
  std::string text = R"({"eps": 1e-3, "on_alert": {"collect": {"eps": 1e-4)";
  for (int i = 0; i < 30'000; ++i) text += ", \"k" + std::to_string(i) + "\": 1";
  text += "}, \"times\": 3}, \"ndigits\": 7}";
  const Config config = captured(text);
  CHECK(config.eps == 1e-4);
  CHECK(config.ndigits == 7);
  REQUIRE(config.on_alert);
  CHECK(config.on_alert->times == 3);
}

TEST_CASE("a capture's config beyond the bounds of a config is an error") {
  const auto overlaid = capture_config(R"({"on_alert": {"collect": {"scalars": {")" +
                                       std::string(600'000, 'a') + R"(": "log"}}}})");
  REQUIRE_FALSE(overlaid);
  CHECK(overlaid.error() == "with the keys of on_alert.collect: found 1200075 bytes, expected at most 1 MiB");
}

TEST_CASE("a config without collect has no capture") {
  CHECK(capture_config("{}").error() == "no on_alert.collect");
  CHECK_FALSE(capture_config(R"({"on_alert": {"times": 3}})"));
}

}  // namespace
}  // namespace gradmon

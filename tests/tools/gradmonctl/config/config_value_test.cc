// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/config/config_value.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

constexpr const char* kText = R"({"step_interval": 1e0, "alert": {"dump": true},
  "targets": {"layers.3": {"input": "tensor"}}, "note": [1,  2]})";

TEST_CASE("a value is returned as written even for an unknown key of the file") {
  CHECK(config_value(kText, "step_interval") == "1e0");
  CHECK(config_value(kText, "/alert/dump") == "true");
  CHECK(config_value(kText, "/targets/layers.3/input") == "\"tensor\"");
  CHECK(config_value(kText, "note") == "[1,  2]");
}

TEST_CASE("a key that the file lacks has its default") {
  CHECK(config_value(kText, "ops") == "[\"norm\"]");
  CHECK(config_value(kText, "collect_times") == "100000000");
  CHECK(config_value(kText, "/alert/rules") == "[]");
  CHECK(config_value(kText, "/on_alert/times") == "1");
  CHECK(config_value(kText, "max_overhead") == "null");
}

TEST_CASE("the error for an unknown key suggests the nearest key of the same object") {
  const auto error = [](const char* key) { return config_value(kText, key).error(); };
  CHECK(error("step_intervall") == "unknown key \"step_intervall\" (did you mean \"step_interval\"?)");
  CHECK(error("/alert/dumb") == "unknown key \"dumb\" in /alert (did you mean \"dump\"?)");
  CHECK(error("/targets/layers.4") == "unknown key \"layers.4\" in /targets (did you mean \"layers.3\"?)");
  CHECK(error("/eps/x") == "unknown key \"x\" in /eps");
  CHECK(error("bananas") == "unknown key \"bananas\"");
}

TEST_CASE("an invalid JSON pointer is an error") {
  CHECK(config_value(kText, "/a~2").error() == "\"/a~2\" is not a key or JSON pointer");
}

}  // namespace
}  // namespace gradmon

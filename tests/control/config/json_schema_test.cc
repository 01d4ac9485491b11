// SPDX-License-Identifier: Apache-2.0
// Compares the JSON Schema with our own validation on generated documents. python3-jsonschema applies the
// schema.
#include <nlohmann/json.hpp>
#include <random>

#include "control/config/config_parser.h"
#include "control/config/config_schema.h"
#include "tests/control/config/scratch_directory.h"
#include "tests/support/catch.h"
#include "tests/support/scale.h"

namespace gradmon {
namespace {

using Json = nlohmann::ordered_json;

// Random configs: mostly valid, sometimes with mistakes, of every kind that a schema
// can express.
class ConfigGenerator {
 public:
  explicit ConfigGenerator(std::uint64_t seed) : random_(seed) {}

  Json next() {
    if (chance(100)) return any_value();
    Json document = part(options<Config>());
    if (chance(3)) document["alert"] = alert();
    if (chance(3)) document["on_alert"] = on_alert();
    return document;
  }

 private:
  bool chance(std::uint64_t one_in) { return random_() % one_in == 0; }
  template <typename List>
  const auto& pick(const List& of) {
    return of[random_() % of.size()];
  }
  // One of the values of a JSON array.
  Json one_of(const char* values) { return pick(Json::parse(values)); }

  // A value of any type, wrong for nearly every key.
  Json any_value() {
    return one_of(
        R"([null, true, 0, 1, -1, 1.0, 0.5, 1e300, "", "true", "auto", "csv", [], [1], ["a", "b", "c"],
                      ["log"], {}, {"a": 1}, {"input": "tensor"}, 9223372036854775807])");
  }

  template <typename Part>
  Json part(const std::vector<Option<Part>>& table) {
    Json json = Json::object();
    const std::uint64_t members = random_() % 4;
    for (std::uint64_t i = 0; i < members; ++i) {
      const Option<Part>& option = pick(table);
      json[std::string(option.name)] = chance(12) ? any_value() : value(option.name);
    }
    if (chance(20)) json[std::string(pick(table).name) + "_"] = any_value();  // unknown: a warning only
    return json;
  }

  Json number() {
    return one_of(R"([0, 1, 2, 100, 101, 1000, 16777216, 16777217, 1.0, 2.0, 1.5, 0.5, 1e-8, -1e-8, -1, 1e18,
                      1e30, 0.0, 100.0, -0.0])");
  }

  Json text() {
    return one_of(R"(["csv", "tensorboard", "api", "sqlite", "s,b,h,d", "b,s,h,d", "auto", "continue", "wait",
                      "block", "drop", "min", "norm", "zero", "log", "records", "", "layers.3", "^a+b", "tensor",
                      "tuple[2]", "tuple[2]:1", "tuple[0]", "tuple[00]:0", "tuple[]", "tuple[1234567890]",
                      "a tensor", "tuple[3]:", "tuple[03]:02", "\u00e9"])");
  }

  Json time_stamp() {
    static const std::vector<Json> texts{"Dec03_21-34-40", "Jan01_00-00-00", "Feb31_23-59-60",
                                         "Dec00_21-34-40", "Dec32_21-34-40", "Dec03_24-34-40",
                                         "dec03_21-34-40", "Dec03"};
    return chance(8) ? texts[random_() % texts.size()] : texts[random_() % 3];
  }

  Json list(Json (ConfigGenerator::*item)()) {
    Json json = Json::array();
    const std::uint64_t size = random_() % 4;
    for (std::uint64_t i = 0; i < size; ++i) json.push_back(chance(12) ? any_value() : (this->*item)());
    return json;
  }

  Json patterns() {
    if (chance(4)) return Json::array({std::string(chance(2) ? 1024 : 1025, 'a')});
    if (chance(8)) return Json(std::vector<std::string>(chance(2) ? 256 : 257, "a"));
    return list(&ConfigGenerator::text);
  }

  Json targets() {
    if (chance(60)) return many_targets();
    Json json = Json::object();
    const std::uint64_t size = random_() % 3;
    for (std::uint64_t i = 0; i < size; ++i)
      json["layers." + std::to_string(i)] = chance(12) ? any_value() : part(options<Config::Target>());
    return json;
  }

  Json many_targets() {
    Json json = Json::object();
    const std::uint64_t size = kMaxTargets + random_() % 2;
    for (std::uint64_t i = 0; i < size; ++i) json[std::to_string(i)] = Json::object();
    return json;
  }

  Json scalars() {
    const char* const ways = R"(["log", "records", "tensorboard", ["log", "records"], [], ["log", "log"],
                                 ["log", 1], null, {}])";
    Json json = Json::object();
    const std::uint64_t size = random_() % 3;
    for (std::uint64_t i = 0; i < size; ++i) json["loss" + std::to_string(i)] = one_of(ways);
    return json;
  }

  Json rule() {
    Json json = Json::object();
    const AlertRuleSchema& schema = pick(alert_rule_schemas());
    if (!chance(8)) json["rule_name"] = chance(8) ? text() : Json(name_of(schema.anomaly));
    if (chance(12))
      json["args"] = any_value();
    else if (!chance(4))
      json["args"] = part(schema.args);
    if (chance(8)) json["note"] = any_value();
    return json;
  }

  Json alert() {
    Json json = part(options<Config::Alert>());
    if (!chance(4)) json["rules"] = list(&ConfigGenerator::rule);
    if (chance(40))
      json["rules"] = std::vector<Json>(kMostAlertRules + random_() % 2, {{"rule_name", "AnomalyNan"}});
    return json;
  }

  Json on_alert() {
    if (chance(12)) return any_value();
    Json json = part(options<Config::OnAlert>());
    if (chance(2)) json["collect"] = chance(12) ? any_value() : part(options<Config>());
    if (chance(2)) json["exec"] = command();
    return json;
  }

  Json command() {
    Json words = Json::array({chance(8) ? text() : Json("/bin/true")});
    for (std::uint32_t more = chance(20) ? 62 + random_() % 4 : random_() % 3; more > 0; --more)
      words.push_back(chance(20) ? Json("with\0NUL") : text());
    return words;
  }

  // A value that is probably valid for this key, whichever part of the config has it.
  Json value(std::string_view key) {
    if (key == "targets") return targets();
    if (key == "target_regex" || key == "cc_codeline") return patterns();
    if (key == "module_ranks") return list(&ConfigGenerator::number);
    if (key == "cc_distribution") return part(options<Config::CcDistribution>());
    if (key == "l2_targets") return part(options<Config::L2Targets>());
    if (key == "alert") return alert();
    if (key == "on_alert") return on_alert();
    if (key == "rules") return list(&ConfigGenerator::rule);
    if (key == "scalars") return scalars();
    if (key == "format") return chance(2) ? text() : list(&ConfigGenerator::text);
    if (key == "sa_causal") return chance(2) ? Json(chance(2)) : text();
    if (key == "append_output") return list(&ConfigGenerator::time_stamp);
    for (const std::string_view one : {"ops", "exec", "attention_hook", "linear_hook",
                                       "moe_router_weight_hook", "moe_router_logit_hook"}) {
      if (key == one) return list(&ConfigGenerator::text);
    }
    for (const std::string_view one :
         {"sa_order", "on_partition", "on_overflow", "input", "output", "input_grad", "output_grad"}) {
      if (key == one) return text();
    }
    for (const std::string_view one :
         {"collect_times", "start_step", "step_interval", "eps", "ndigits", "step_count_per_record",
          "lookahead_steps", "fence_timeout", "queue_capacity", "max_overhead", "keep_last",
          "throughput_baseline", "times", "cooldown", "threshold", "window", "fraction", "steps"}) {
      if (key == one) return number();
    }
    return chance(2);
  }

  std::mt19937_64 random_;
};

// True if no schema can express this error.
bool beyond_schema(const ConfigError& error) {
  return error.expected.find("RE2") != std::string::npos ||
         error.expected == "an element index below the size of the tuple";
}

TEST_CASE("the JSON Schema accepts the same configs as our own validation") {
  const int count = full_scale() ? 100'000 : 6'000;
  TemporaryDirectory directory;
  ConfigGenerator documents(4);
  std::string lines;
  int valid = 0;
  for (int i = 0; i < count; ++i) {
    const std::string text = documents.next().dump();
    const auto parsed = parse_config(text, "generated");
    const bool ours =
        parsed.has_value() || std::all_of(parsed.error().begin(), parsed.error().end(), beyond_schema);
    valid += ours ? 1 : 0;
    lines += (ours ? "valid " : "wrong ") + text + '\n';
  }
  REQUIRE(valid > count / 10);
  REQUIRE(valid < count * 9 / 10);
  write_text(directory / "schema.json", config_json_schema());
  write_text(directory / "documents.txt", lines);
  const auto quoted = [&](const char* name) { return "'" + (directory / name).string() + "'"; };
  const std::string command = "'" GRADMON_PYTHON "' '" GRADMON_JUDGE "' " + quoted("schema.json") + " " +
                              quoted("documents.txt") + " >" + quoted("differ") + " 2>&1";
  const int code = std::system(command.c_str());
  CAPTURE(read_text(directory / "differ"));
  REQUIRE(code == 0);
  CHECK(read_text(directory / "differ") == std::to_string(count) + " judged alike\n");
}

}  // namespace
}  // namespace gradmon

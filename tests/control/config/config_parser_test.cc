// SPDX-License-Identifier: Apache-2.0
#include "control/config/config_parser.h"
#include "control/config/config_schema.h"
#include "tests/support/catch.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>

namespace gradmon {
namespace {

Config parse_valid(std::string_view text) {
  const auto parsed = parse_config(text, "c.json");
  INFO(text);
  INFO((parsed ? "" : to_string(parsed.error())));
  REQUIRE(parsed.has_value());
  return parsed->config;
}

// The messages, one per line: the errors, or the warnings if there is no error.
std::string messages(std::string_view text) {
  const auto parsed = parse_config(text, "c.json");
  if (!parsed) return to_string(parsed.error()) + "\n";
  std::string lines;
  for (const auto& warning : parsed->warnings) lines += "warning: " + to_string(warning) + "\n";
  return lines;
}

// One case of the golden file: the line "--- TITLE", a config, the line "=>", and
// the messages for that config.
struct GoldenCase {
  std::string title, text, messages;
};
std::vector<GoldenCase> read_golden(const char* path) {
  std::ifstream file(path);
  REQUIRE(file.good());
  std::vector<GoldenCase> all;
  std::string line;
  bool answer = false;
  while (std::getline(file, line)) {
    if (line.rfind("--- ", 0) == 0) {
      all.push_back({line.substr(4), "", ""});
      answer = false;
    } else if (line == "=>") {
      answer = true;
    } else {
      (answer ? all.back().messages : all.back().text) += line + "\n";
    }
  }
  return all;
}

TEST_CASE("an empty object gives the default of every key") {
  const auto config = parse_valid("{}");
  CHECK(config.targets.empty());
  CHECK_FALSE(config.dynamic_on);
  CHECK(config.collect_times == 100'000'000);
  CHECK(config.step_interval == 1);
  CHECK(config.ops == std::vector<Op>{Op::norm});
  CHECK(config.format == std::vector<Config::Format>{Config::Format::csv});
  CHECK(config.eps == 1e-8);
  CHECK(config.ndigits == 6);
  CHECK(config.squash_name);
  CHECK_FALSE(config.reuse_readings);
  CHECK_FALSE(config.digits.has_value());
  CHECK(config.compress == Config::Compress::none);
  CHECK((config.replicas == Config::Replicas::all && config.tags == Config::Tags::gradmon));
  CHECK(config.fence_timeout == std::chrono::seconds(30));
  CHECK(config.queue_capacity == 65'536);
  CHECK(config.write_back);
  CHECK_FALSE(config.lookahead_steps.has_value());
  CHECK_FALSE(config.l2_targets.linear_hook.has_value());
}

// Each key has another value than its default.
std::string full_config() {
  std::ifstream file(GRADMON_CORPUS "/config_text/every_key.json");
  return {std::istreambuf_iterator<char>(file), {}};
}

template <typename Part>
void check_has_keys(const std::string& text, const std::vector<Option<Part>>& table = options<Part>()) {
  for (const auto& option : table) {
    const std::string key = "\"" + std::string(option.name) + "\":";
    INFO(key);
    CHECK(text.find(key) != std::string::npos);
  }
}

TEST_CASE("every key of a full file is read") {
  const std::string text = full_config();
  check_has_keys<Config>(text);
  check_has_keys<Config::Target>(text);
  check_has_keys<Config::CcDistribution>(text);
  check_has_keys<Config::L2Targets>(text);
  check_has_keys<Config::Alert>(text);
  check_has_keys<Config::OnAlert>(text);
  for (const AlertRuleSchema& rule : alert_rule_schemas()) check_has_keys(text, rule.args);
  const auto config = parse_valid(text);
  REQUIRE(config.targets.size() == 2);
  CHECK(config.targets[0].name == "b.weight");
  CHECK(config.targets[1].input == Config::Selection{2, 1});
  CHECK(config.targets[1].output == Config::Selection{0, 0});
  CHECK(config.targets[1].output_grad == Config::Selection{3, 0});
  CHECK(config.targets[1].input_grad == Config::Selection{4, 3});
  CHECK(config.target_regex == std::vector<std::string>{"layers\\.[0-3]\\."});
  CHECK(
      (config.invert && config.dynamic_on && config.print_struct && config.xy_distribution && config.all_xy));
  CHECK((config.forward_only && config.backward_only && config.wg_distribution));
  CHECK((config.monitor_mbs_grad && config.mv_distribution));
  CHECK((config.param_distribution && config.ur_distribution && config.mg_direction && config.stack_info));
  CHECK((config.collect_times == 3 && config.start_step == 4 && config.step_interval == 5));
  CHECK(config.module_ranks == std::vector<std::int64_t>{0, 3});
  CHECK(config.cc_distribution == Config::CcDistribution{true, {"train.py\\[23\\]"}, true, true});
  CHECK(config.l2_targets.attention_hook == std::vector<std::string>{"att"});
  CHECK(config.l2_targets.linear_hook == std::vector<std::string>{});
  CHECK(config.l2_targets.moe_router_weight_hook == std::vector<std::string>{"weight"});
  CHECK(config.l2_targets.moe_router_logit_hook == std::vector<std::string>{"logit"});
  CHECK((config.recording_l2_features && config.sa_order == AxisOrder::bshd));
  CHECK(config.sa_causal == CausalMask::no);
  REQUIRE(config.alert.rules.size() == 2);
  CHECK(config.alert.rules[0] == AlertRule{Anomaly::turbulence, 0.5});
  CHECK(config.alert.rules[1] == AlertRule{Anomaly::nan, std::nullopt});
  CHECK(config.alert.dump);
  CHECK(config.format == std::vector<Config::Format>{Config::Format::csv, Config::Format::sqlite});
  CHECK(config.ops == std::vector<Op>{Op::max, Op::min});
  CHECK((config.eps == 1e-3 && config.ndigits == 12 && config.step_count_per_record == 7));
  CHECK(config.append_output.size() == 2);
  CHECK_FALSE(config.squash_name);
  CHECK(config.compress == Config::Compress::zstd);
  CHECK((config.replicas == Config::Replicas::first && config.tags == Config::Tags::msprobe));
  CHECK((config.reuse_readings && config.sample == 16));
  CHECK(config.lookahead_steps == 8);
  CHECK(config.max_wait == std::chrono::milliseconds(1500));
  CHECK(config.fence_timeout == std::chrono::milliseconds(500));
  CHECK((config.on_partition == Config::OnPartition::wait && config.on_overflow == Config::OnOverflow::drop));
  CHECK((config.queue_capacity == 1024 && config.max_overhead == 0.05 && config.keep_last == 9));
  REQUIRE(config.on_alert.has_value());
  REQUIRE(config.on_alert->collect != nullptr);
  CHECK(config.on_alert->collect->ops == std::vector<Op>{Op::nans});
  CHECK((config.on_alert->times == 2 && config.on_alert->cooldown == std::chrono::seconds(60)));
  CHECK(config.on_alert->exec.size() == 2);
  REQUIRE(config.scalars.size() == 2);
  CHECK(config.scalars[1] == Config::Scalar{"grad-norm", true, true});
  CHECK(config.throughput_baseline == 12.5);
  CHECK_FALSE(config.write_back);
}

TEST_CASE("the config file in msprobe's documentation is accepted unchanged") {
  const auto parsed = parse_config(R"({
    "targets": {"language_model.encoder.layers.0": {"input": "tuple[2]:0", "output": "tensor",
                "input_grad":"tuple[2]:0", "output_grad":"tuple[1]:0"}},
    "dynamic_on": false, "start_step": 0, "collect_times": 100000000, "step_interval": 1,
    "print_struct": false, "module_ranks": [0,1,2,3], "ur_distribution": true, "xy_distribution": true,
    "all_xy": true, "forward_only": false, "backward_only": false, "mv_distribution": true,
    "param_distribution": true, "wg_distribution": true, "monitor_mbs_grad": true,
    "cc_distribution": {"enable":true, "cc_codeline":[]},
    "alert": {"rules": [{"rule_name": "AnomalyTurbulence", "args": {"threshold": 0.5}}], "dump": false},
    "format": "csv", "ops": ["min", "max", "norm", "zeros", "nans", "mean"], "eps": 1e-8, "ndigits": 12,
    "step_count_per_record": 1, "append_output": [], "squash_name": true})",
                                   "c.json");
  REQUIRE(parsed.has_value());
  CHECK(parsed->config.ops.size() == 6);
}

TEST_CASE("every argument of every alert rule is read, and has its default otherwise") {
  const auto rules = parse_valid(R"({"alert": {"rules": [
    {"rule_name": "AnomalySpike"}, {"rule_name": "AnomalyVanish", "args": {}},
    {"rule_name": "AnomalySpike", "args": {"threshold": 7, "window": 16}},
    {"rule_name": "AnomalyVanish", "args": {"fraction": 0, "steps": 1, "window": 256}}]}})")
                         .alert.rules;
  REQUIRE(rules.size() == 4);
  CHECK(rules[0] == AlertRule{Anomaly::spike, std::nullopt, 64, 1e-3, 3});
  CHECK(rules[1] == AlertRule{Anomaly::vanish, std::nullopt, 64, 1e-3, 3});
  CHECK(rules[2] == AlertRule{Anomaly::spike, 7.0, 16});
  CHECK(rules[3] == AlertRule{Anomaly::vanish, std::nullopt, 256, 0, 1});
}

TEST_CASE("the defaults in the tables of the alert rules are those of a rule without arguments") {
  const AlertRule rule;
  std::size_t compared = 0;
  for (const AlertRuleSchema& schema : alert_rule_schemas()) {
    CHECK(schema.anomaly == static_cast<Anomaly>(&schema - alert_rule_schemas().data()));
    for (const auto& option : schema.args) {
      const double value = std::stod("0" + std::string(option.default_text));
      if (option.name == "window") CHECK(value == static_cast<double>(rule.window));
      if (option.name == "steps") CHECK(value == static_cast<double>(rule.steps));
      if (option.name == "fraction") CHECK(value == rule.fraction);
      if (option.name == "threshold" && schema.anomaly == Anomaly::spike) CHECK(value == kSpikeThreshold);
      if (option.name == "threshold" && schema.anomaly == Anomaly::rank_divergence)
        CHECK(value == kDivergenceThreshold);
      ++compared;
    }
  }
  CHECK(compared == 8);
}

TEST_CASE("the messages for each config are those of the golden file") {
  const auto all = read_golden(GRADMON_CONFIG_GOLDEN);
  REQUIRE(all.size() > 40);
  for (const auto& golden : all) {
    INFO(golden.title);
    CHECK(messages(golden.text) == golden.messages);
  }
}

TEST_CASE("1.0 and 1e3 are integers") {
  CHECK(parse_valid(R"({"collect_times": 1.0})").collect_times == 1);
  CHECK(parse_valid(R"({"collect_times": 1e3})").collect_times == 1000);
  CHECK(parse_valid(R"({"collect_times": 9223372036854775807})").collect_times == 9223372036854775807);
}

TEST_CASE("a number without an upper bound may be any double, and a duration is at most 1e12 ms") {
  const auto config = parse_valid(R"({"eps": 1e30, "throughput_baseline": 1.7976931348623157e308,
    "max_wait": 1e30, "on_alert": {"cooldown": 1e308},
    "alert": {"rules": [{"rule_name": "AnomalyNan", "args": {"threshold": 18446744073709551615}}]}})");
  CHECK(config.eps == 1e30);
  CHECK(config.throughput_baseline == 1.7976931348623157e308);
  CHECK(config.max_wait == std::chrono::milliseconds(1'000'000'000'000));
  CHECK(config.on_alert->cooldown == std::chrono::milliseconds(1'000'000'000'000));
  CHECK(config.alert.rules.at(0).threshold == 18446744073709551616.0);
  CHECK(messages(R"({"max_overhead": 1e30})") ==
        "c.json:1:18: /max_overhead: found 1e30, expected a number > 0 and <= 1\n");
}

TEST_CASE("digits wins over ndigits with a warning") {
  CHECK(parse_valid(R"({"digits": 7})").digits == 7);
  CHECK(messages(R"({"digits": 7})").empty());
  CHECK(messages(R"({"ndigits": 9, "digits": 7})") ==
        "warning: c.json:1:13: /ndigits: no effect: \"digits\" is set\n");
  CHECK(messages(R"({"digits": 18})") ==
        "c.json:1:12: /digits: found 18, expected an integer from 1 to 17\n");
}

TEST_CASE("sample is from 1 to 64, and warns of the rule that does not compare samples") {
  CHECK(parse_valid("{}").sample == 1);
  CHECK(parse_valid(R"({"sample": 16})").sample == 16);
  for (const std::string value : {"0", "65", "-16", "2.5", "\"16\"", "true"})
    CHECK(messages(R"({"sample": )" + value + "}") ==
          "c.json:1:12: /sample: found " + value + ", expected an integer from 1 to 64\n");
  const std::string rule = R"("alert": {"rules": [{"rule_name": "AnomalyRankDivergence"}]})";
  CHECK(messages("{" + rule + R"(, "sample": 1})").empty());
  CHECK(
      messages(R"({"sample": 16, )" + rule + "}") ==
      "warning: c.json:1:12: /sample: AnomalyRankDivergence does not compare tensors that are read in part, "
      "those above 1 MiB\n");
}

TEST_CASE("a key that begins with two slashes is a comment, wherever keys are known") {
  CHECK(messages(R"({"//": "mine", "// ops": [1, {"a": null}], "alert": {"// rules": 7,
    "rules": [{"rule_name": "AnomalyNan", "// args": "none"}]}, "targets": {"a": {"// input": ""}}})")
            .empty());
}

TEST_CASE("an unknown key may have a number of any size") {
  for (const std::string number : {"18446744073709551616", "-9223372036854775809", "1e400", "-1e400",
                                   "123456789012345678901234567890", "1E+99999999999999999999"}) {
    CAPTURE(number);
    CHECK(parse_valid("{\"comment\": " + number + ", \"collect_times\": 3}").collect_times == 3);
    CHECK(parse_valid("\xEF\xBB\xBF{\"eps\": 2, \"notes\": [{\"n\": " + number + "}, 7]}").eps == 2);
    CHECK(messages("{\"comment\": " + number + "}") == "warning: c.json:1:2: unknown key \"comment\"\n");
  }
}

TEST_CASE("every key that is a real number takes an integer of 30 digits as it takes 1e30") {
  const std::string integer = "1" + std::string(30, '0');
  int real = 0;
  const auto same = [&](const auto& option, const std::string& before, const std::string& after) {
    const std::string named = before + "\"" + std::string(option.name) + "\": ";
    CAPTURE(named);
    const auto found = [&](const std::string& number) {
      std::string text = messages(named + number + after);
      const auto at = text.find(number);
      return at == std::string::npos ? text : text.replace(at, number.size(), "N");
    };
    CHECK(found(integer) == found("1e30"));
    CHECK(found("1e400").find(std::string(option.expected)) != std::string::npos);
    ++real;
  };
  const auto each = [&](const auto& table, const std::string& before, const std::string& after) {
    for (const auto& option : table) {
      if (option.expected.substr(0, 8) == "a number") same(option, before, after);
    }
  };
  each(options<Config>(), "{", "}");
  each(options<Config::OnAlert>(), "{\"on_alert\": {", "}}");
  for (const auto& rule : alert_rule_schemas()) {
    each(rule.args,
         "{\"alert\": {\"rules\": [{\"rule_name\": \"" +
             std::string(kAnomalyNames[static_cast<std::size_t>(rule.anomaly)]) + "\", \"args\": {",
         "}}]}}");
  }
  CHECK(real >= 10);
  CHECK(parse_valid("{\"throughput_baseline\": " + integer + "}").throughput_baseline == 1e30);
}

TEST_CASE("a byte order mark and CRLF do not shift positions, and columns count characters") {
  CHECK(messages("{\"\xE6\x9D\x83\": 1, \"eps\": 0}").find("c.json:1:17: /eps") != std::string::npos);
  CHECK(parse_valid("\xEF\xBB\xBF{\"collect_times\": 2}\r\n").collect_times == 2);
  CHECK(messages("\xEF\xBB\xBF{\"eps\": 0}") == "c.json:1:9: /eps: found 0, expected a number > 0\n");
  CHECK(messages("{\r\n  \"eps\": 0\r\n}") == "c.json:2:10: /eps: found 0, expected a number > 0\n");
}

TEST_CASE("bytes that are not text are refused") {
  CHECK(messages(std::string("{\"a\": \"x\xFF\"}")) ==
        "c.json:1:9: found byte 0xff at byte offset 8, expected valid UTF-8\n");
  CHECK(messages(std::string("{\"a\": \"\xED\xA0\x80\"}")).find("valid UTF-8") != std::string::npos);
  CHECK(messages(std::string("{\"a\": \"\x01\"}")).find("control character 0x01") != std::string::npos);
  CHECK(messages(std::string("{\0}", 3)).find("UTF-16") != std::string::npos);
  CHECK(messages(std::string("\xFF\xFE{\0}\0", 6)).find("UTF-16") != std::string::npos);
  CHECK(messages(std::string("\0\0\0\0\0\0", 6)).find("NUL") != std::string::npos);
  CHECK(messages("").find("an empty file") != std::string::npos);
  CHECK(messages("  \n ").find("an empty file") != std::string::npos);
}

TEST_CASE("a config cut at any byte is refused") {
  const std::string text =
      R"({"targets": {"a\u00e9": {}}, "ops": ["min", "max"], "eps": 1.5e-3, "invert": true, "format": "csv"})";
  parse_valid(text);
  for (std::size_t length = 0; length < text.size(); ++length) {
    INFO(length);
    CHECK_FALSE(parse_config(text.substr(0, length), "c.json").has_value());
  }
}

TEST_CASE("configs over a limit and patterns that RE2 refuses are refused") {
  const auto refused = [](const std::string& text) { return !parse_config(text, "c.json").has_value(); };
  CHECK(refused(std::string(100'000, '[')));
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "{\"a\":";
  CHECK(refused(deep));
  CHECK(refused("{\"a\": \"" + std::string(2'000'000, 'x') + "\"}"));
  std::string many = "{\"a\": [1";
  for (int i = 0; i < 70'000; ++i) many += ",1";
  CHECK(refused(many + "]}"));
  std::string targets = "{\"targets\": {\"t\": {}";
  for (int i = 0; i < 4096; ++i) targets += ", \"t" + std::to_string(i) + "\": {}";
  CHECK(refused(targets + "}}"));
  CHECK(refused("{\"target_regex\": [\"" + std::string(1025, 'x') + "\"]}"));
  CHECK(refused(R"({"target_regex": ["((a{100}){100}){100}"]})"));
  std::string patterns = "{\"target_regex\": [\"a\"";
  for (int i = 0; i < 256; ++i) patterns += ", \"a\"";
  CHECK(refused(patterns + "]}"));
  CHECK(refused(R"({"target_regex": ["(unclosed"]})"));
}

TEST_CASE("at most a hundred errors are reported") {
  std::string text = "{\"module_ranks\": [-1";
  for (int i = 0; i < 200; ++i) text += ", -1";
  const auto parsed = parse_config(text + "]}", "c.json");
  REQUIRE_FALSE(parsed.has_value());
  CHECK(parsed.error().size() == 100);
}

TEST_CASE("duplicate keys are reported with both positions, at most a hundred of them") {
  CHECK(messages("{\n\"eps\": 1,\n\"\\u0065ps\": 2}") ==
        "c.json:3:1: /eps: duplicate key \"\\u0065ps\" (first at 2:1)\n");
  std::string text = "{\"a\":1";
  for (int i = 0; i < 65'000; ++i) text += ",\"a\":1";
  const auto parsed = parse_config(text + "}", "c.json");
  REQUIRE_FALSE(parsed.has_value());
  REQUIRE(parsed.error().size() == 100);
  CHECK(to_string(parsed.error().back()) == "c.json:1:602: /a: duplicate key \"a\" (first at 1:596)");
  text = "{\"a\":1";
  for (int i = 0; i < 100'000; ++i) text += ",\"a\":1";
  CHECK(messages(text + "}") == "c.json:1:393216: more than 65536 values\n");
}

TEST_CASE("after a pattern that is too large no other pattern is compiled") {
  std::string text = R"({"target_regex": ["\\pL{1000}")";
  for (int i = 0; i < 255; ++i) text += R"(, "a")";
  const auto lines = messages(text + "]}");
  CHECK(lines.find("/target_regex/0: found \"\\\\pL{1000}\", expected a pattern that RE2 accepts") !=
        std::string::npos);
  CHECK(lines.find(
            "/target_regex/1: found \"a\", expected simpler patterns: together they exceed the size limit") !=
        std::string::npos);
}

TEST_CASE("the reference has one line for every config key") {
  const auto reference = config_reference();
  CHECK(static_cast<std::size_t>(std::count(reference.begin(), reference.end(), '\n')) ==
        options<Config>().size());
  CHECK(reference.find("queue_capacity") != std::string::npos);
  CHECK(reference.find("takes effect at the next start") != std::string::npos);
}

TEST_CASE("only changed keys that take effect at the next start are listed") {
  const auto running = parse_valid("{}");
  CHECK(changed_restart_keys(running, parse_valid(R"({"eps": 1, "ops": ["min"], "write_back": false})"))
            .empty());
  CHECK(changed_restart_keys(running, parse_valid(R"({"queue_capacity": 1})")) ==
        std::vector<std::string_view>{"queue_capacity"});
}

}  // namespace
}  // namespace gradmon

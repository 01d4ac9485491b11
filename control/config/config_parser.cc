// SPDX-License-Identifier: Apache-2.0
#include "control/config/config_parser.h"

#include <re2/re2.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <utility>
#include <variant>

#include "control/config/config_schema.h"
#include "control/text/output_names.h"

namespace gradmon {
namespace {

constexpr std::size_t kMaxReports = 100;

// Fills a Config from JSON values by the tables of config_schema.h, and collects all errors and
// warnings. Pure; any thread.
class Reader {
 public:
  Reader(const JsonText& json, std::string_view file) : json_(json), file_(file) {}

  ConfigResult run() {
    report_duplicates();
    read_part(0, "one JSON object", config_);
    if (config_.forward_only && config_.backward_only) {
      const auto key = json_.member(0, "backward_only");
      warn(key.value_or(0), "forward_only and backward_only are both true: no activations are collected");
    }
    if (const auto key = json_.member(0, "ndigits"); key && config_.digits)
      warn(*key, "no effect: \"digits\" is set");
    if (config_.ur_distribution) warn_of_histograms();
    if (config_.sample > 1) warn_of_samples();
    if (!errors_.empty()) return tl::unexpected(std::move(errors_));
    return ParsedConfig{std::move(config_), std::move(warnings_)};
  }

 private:
  void report_duplicates() {
    const auto duplicates = json_.duplicate_keys();
    for (const auto& [first, second] : duplicates) {
      if (errors_.size() >= kMaxReports) break;  // each place is counted from the start of the text
      const auto at = json_.place_of(key_offset(first));
      error_at(key_offset(second), second,
               "duplicate key " + excerpt(json_.key_literal(second)) + " (first at " +
                   std::to_string(at.line) + ":" + std::to_string(at.column) + ")",
               "");
    }
    refused_ = duplicates.size();
  }

  void warn_of_histograms() {
    const auto at = json_.member(0, "ur_distribution").value_or(0);
    if (!writes_format(config_, Config::Format::tensorboard)) {
      warn(at, "histograms need \"tensorboard\" in \"format\": none are collected");
    } else if (config_.format.size() > 1) {
      warn(at, "of the formats only \"tensorboard\" holds histograms");
    }
  }

  void warn_of_samples() {
    const auto& rules = config_.alert.rules;
    const bool compares = std::any_of(rules.begin(), rules.end(), [](const AlertRule& rule) {
      return rule.anomaly == Anomaly::rank_divergence;
    });
    if (compares)
      warn(json_.member(0, "sample").value_or(0),
           "AnomalyRankDivergence does not compare tensors that are read in part, those above 1 MiB");
  }

  template <typename Part>
  void read_part(std::uint32_t object, std::string_view expected, Part& part) {
    if (kind(object) != JsonKind::object) return add_error(object, expected);
    read_object(object, options<Part>(), part);
  }

  template <typename Part>
  void read_object(std::uint32_t object, const std::vector<Option<Part>>& options_of_part, Part& part) {
    for (const auto child : json_.children(object)) {
      const auto key = json_.key(child);
      const auto named = [&](const auto& option) { return option.name == key; };
      const auto option = std::find_if(options_of_part.begin(), options_of_part.end(), named);
      if (option != options_of_part.end()) {
        read_option(child, *option, part);
      } else {
        std::vector<std::string_view> names;
        for (const auto& known : options_of_part) names.push_back(known.name);
        warn_unknown(child, names);
      }
    }
  }

  template <typename Part>
  void read_option(std::uint32_t at, const Option<Part>& option, Part& part) {
    std::visit([&](auto field) { read(at, option.constraint(), part.*field); }, option.field);
    if (option.support == Support::obsolete)
      warn(at,
           '"' + std::string(option.name) + "\" has no effect: \"max_wait\" bounds how long training waits");
  }

  void read(std::uint32_t at, const Constraint& wanted, bool& out) { read_scalar(at, wanted, out); }
  void read(std::uint32_t at, const Constraint& wanted, std::string& out) { read_scalar(at, wanted, out); }
  template <typename Value>
  void read_scalar(std::uint32_t at, const Constraint& wanted, Value& out) {
    auto value = as<Value>(at);
    if (!value) return add_error(at, wanted.expected);
    out = std::move(*value);
  }

  void read(std::uint32_t at, const Constraint& wanted, std::int64_t& out) {
    constexpr double kTooLarge = 9223372036854775808.0;
    const auto value = json_.scalar(at);
    const auto* real = std::get_if<double>(&value);
    const bool whole = real != nullptr && std::trunc(*real) == *real;
    if (std::holds_alternative<std::uint64_t>(value) || (whole && std::abs(*real) >= kTooLarge))
      return add_error(at, std::string(wanted.expected) + " and < 2^63");
    const auto* integer = std::get_if<std::int64_t>(&value);
    if (integer == nullptr && !whole) return add_error(at, wanted.expected);
    const auto number = integer != nullptr ? *integer : static_cast<std::int64_t>(*real);
    if (number < wanted.low || number > wanted.high) return add_error(at, wanted.expected);
    out = number;
  }

  void read(std::uint32_t at, const Constraint& wanted, double& out) {
    if (kind(at) != JsonKind::number) return add_error(at, wanted.expected);
    const auto to_double = [](const auto& value) {
      if constexpr (std::is_arithmetic_v<std::decay_t<decltype(value)>>) return static_cast<double>(value);
      return 0.0;
    };
    const double number = std::visit(to_double, json_.scalar(at));
    if (std::isinf(number)) return add_error(at, std::string(wanted.expected) + " that fits in 64 bits");
    const auto low = static_cast<double>(wanted.low);
    const bool above = number > low || (wanted.rule == Rule::inclusive_low && number >= low);
    const bool below = wanted.high == kUnbounded || number <= static_cast<double>(wanted.high);
    if (!above || !below) return add_error(at, wanted.expected);
    out = number;
  }

  void read(std::uint32_t at, const Constraint& wanted, std::chrono::milliseconds& out) {
    constexpr double kLongest = 1e12;
    double in_seconds = 0;
    if (!read_whole(at, wanted, in_seconds)) return;
    out = std::chrono::milliseconds(
        static_cast<std::int64_t>(std::min(std::ceil(in_seconds * 1000), kLongest)));
  }

  template <typename Value>
  void read(std::uint32_t at, const Constraint& wanted, std::optional<Value>& out) {
    Value value{};
    if (read_whole(at, wanted, value)) out = std::move(value);
  }

  void read(std::uint32_t at, const Constraint& wanted, std::vector<std::string>& out) {
    const bool patterns = wanted.rule == Rule::patterns;
    const bool times = wanted.rule == Rule::zero_or_two;
    const bool command = wanted.rule == Rule::command;
    const std::size_t items = json_.nodes[at].children;
    if ((patterns && items > kMaxPatterns) || (times && items != 0 && items != 2) ||
        (command && items > kMaxArguments))
      return add_error(at, wanted.expected);
    out.clear();
    read_list(at, wanted, [&](std::uint32_t item) {
      std::string value;
      if (!read_whole(item, Constraint{"a string"}, value)) return;
      if (patterns && !check_pattern(item, value)) return;
      if (times && !seconds_in_year(value)) return add_error(item, "a time stamp such as \"Dec03_21-34-40\"");
      if (command && item == at + 1 && value.rfind('/', 0) != 0) return add_error(item, "an absolute path");
      if (command && value.find('\0') != std::string::npos) return add_error(item, "a string without NUL");
      out.push_back(value);
    });
  }

  void read(std::uint32_t at, const Constraint& wanted, std::vector<std::int64_t>& out) {
    out.clear();
    read_list(at, wanted, [&](std::uint32_t item) {
      std::int64_t value = 0;
      if (read_whole(item, Constraint{"an integer >= 0", Rule::range, wanted.low, wanted.high}, value))
        out.push_back(value);
    });
  }

  void read(std::uint32_t at, const Constraint& wanted, std::vector<Op>& out) {
    std::vector<Op> ops;
    const auto before = refused_;
    read_list(at, wanted, [&](std::uint32_t item) {
      std::string name;
      if (!read_whole(item, Constraint{"a string"}, name)) return;
      const auto found = std::find(kOpNames.begin(), kOpNames.end(), name);
      if (found == kOpNames.end()) return warn_unknown_op(item, name);
      add_new(ops, static_cast<Op>(found - kOpNames.begin()));
    });
    if (refused_ > before) return;
    if (ops.empty()) warn(at, "no valid op: using \"norm\"");
    out = ops.empty() ? std::vector<Op>{Op::norm} : std::move(ops);
  }

  void read(std::uint32_t at, const Constraint& wanted, std::vector<Config::Format>& out) {
    std::vector<Config::Format> formats;
    const auto read_one = [&](std::uint32_t item) {
      Config::Format format{};
      if (read_name(item, "\"csv\", \"tensorboard\", \"api\" or \"sqlite\"", kFormatNames, format))
        add_new(formats, format);
    };
    if (kind(at) == JsonKind::string) {
      read_one(at);
    } else if (json_.nodes[at].children == 0) {
      add_error(at, wanted.expected);
    } else {
      read_list(at, wanted, read_one);
    }
    if (!formats.empty()) out = std::move(formats);
  }

  template <typename Enum, typename = std::enable_if_t<std::is_enum_v<Enum>>>
  void read(std::uint32_t at, const Constraint& wanted, Enum& out) {
    read_name(at, wanted.expected, names_of<Enum>(), out);
  }
  void read(std::uint32_t at, const Constraint& wanted, CausalMask& out) {
    const auto flag = as<bool>(at);
    if (as<std::string>(at) == "auto") {
      out = CausalMask::automatic;
    } else if (flag) {
      out = *flag ? CausalMask::yes : CausalMask::no;
    } else {
      add_error(at, wanted.expected);
    }
  }

  void read(std::uint32_t at, const Constraint& wanted, std::vector<Config::Target>& out) {
    if (kind(at) != JsonKind::object || json_.nodes[at].children > kMaxTargets)
      return add_error(at, wanted.expected);
    out.clear();
    for (const auto child : json_.children(at)) {
      Config::Target target;
      target.name = json_.key(child);
      read_part(child, "an object, as {} or {\"input\": \"tensor\"}", target);
      out.push_back(std::move(target));
    }
  }

  void read(std::uint32_t at, const Constraint& wanted, Config::Selection& out) {
    static const RE2 tuple(R"(tuple\[(\d{1,9})\](?::(\d{1,9}))?)");
    const auto text = as<std::string>(at);
    if (!text) return add_error(at, wanted.expected);
    if (*text == "tensor") return;
    std::int64_t size = 0;
    std::string given;
    if (!RE2::FullMatch(*text, tuple, &size, &given)) return add_error(at, wanted.expected);
    const std::int64_t index = given.empty() ? 0 : std::stoll(given);
    if (index >= size) return add_error(at, "an element index below the size of the tuple");
    out = {size, index};
  }

  template <typename Part, decltype(std::declval<Part>().tied())* = nullptr>
  void read(std::uint32_t at, const Constraint& wanted, Part& out) {
    if (std::is_same_v<Part, Config::OnAlert> && within_collect_)
      return add_error(at, "no \"on_alert\" within \"collect\"");
    read_part(at, wanted.expected, out);
  }
  void read(std::uint32_t at, const Constraint& wanted, std::shared_ptr<const Config>& out) {
    Config config;
    within_collect_ = true;
    read_part(at, wanted.expected, config);
    within_collect_ = false;
    out = std::make_shared<const Config>(std::move(config));
  }

  void read(std::uint32_t at, const Constraint& wanted, std::vector<AlertRule>& out) {
    out.clear();
    if (json_.nodes[at].children > kMostAlertRules) return add_error(at, wanted.expected);
    read_list(at, wanted, [&](std::uint32_t item) { read_rule(item, out); });
  }

  void read_rule(std::uint32_t at, std::vector<AlertRule>& out) {
    const auto name = json_.member(at, "rule_name");
    const auto args = json_.member(at, "args");
    if (!name) return add_error(at, "an object with \"rule_name\" and \"args\"");
    const auto before = refused_;
    AlertRule rule;
    read_anomaly(*name, rule.anomaly);
    if (args && kind(*args) != JsonKind::object) add_error(*args, "an object");
    for (const auto child : json_.children(at)) {
      if (child != *name && child != args) warn_unknown(child, {"rule_name", "args"});
    }
    if (refused_ > before) return;
    const AlertRuleSchema& schema = alert_rule_schemas()[static_cast<std::size_t>(rule.anomaly)];
    if (args) read_object(*args, schema.args, rule);
    const bool lacks = !schema.required.empty() && !(args && json_.member(*args, schema.required));
    if (lacks)
      return add_error(args.value_or(at), "\"args\" with a \"" + std::string(schema.required) + "\"");
    if (refused_ == before) out.push_back(rule);
  }

  void read_anomaly(std::uint32_t at, Anomaly& out) {
    const auto text = as<std::string>(at);
    const auto found = std::find(kAnomalyNames.begin(), kAnomalyNames.end(), text.value_or(""));
    if (found != kAnomalyNames.end())
      return static_cast<void>(out = static_cast<Anomaly>(found - kAnomalyNames.begin()));
    std::string expected;
    for (const char* name : kAnomalyNames) {
      const char* const separator = std::string_view(name) == kAnomalyNames.back() ? " or " : ", ";
      expected += (expected.empty() ? "\"" : std::string(separator) + "\"") + name + '"';
    }
    const std::vector<std::string_view> names{kAnomalyNames.begin(), kAnomalyNames.end()};
    add_error(at, expected + (text ? suggestion(*text, names) : ""));
  }

  void read(std::uint32_t at, const Constraint& wanted, std::vector<Config::Scalar>& out) {
    if (kind(at) != JsonKind::object) return add_error(at, wanted.expected);
    for (const auto child : json_.children(at)) {
      Config::Scalar entry;
      entry.name = json_.key(child);
      const auto ways = kind(child) == JsonKind::array ? json_.children(child) : std::vector{child};
      for (const auto item : ways) {
        const auto value = as<std::string>(item);
        if (value == "log") {
          entry.log = true;
        } else if (value == "records") {
          entry.records = true;
        } else {
          add_error(item, "\"log\", \"records\" or a list of both");
        }
      }
      out.push_back(std::move(entry));
    }
  }

  // Returns true if the value was read without an error.
  template <typename Value>
  bool read_whole(std::uint32_t at, const Constraint& wanted, Value& out) {
    const auto before = refused_;
    read(at, wanted, out);
    return refused_ == before;
  }

  template <typename Read>
  void read_list(std::uint32_t at, const Constraint& wanted, Read read_item) {
    if (kind(at) != JsonKind::array) return add_error(at, wanted.expected);
    for (const auto item : json_.children(at)) read_item(item);
  }

  template <std::size_t N, typename Value>
  bool read_name(std::uint32_t at, std::string_view expected, const std::array<std::string_view, N>& names,
                 Value& out) {
    const auto text = as<std::string>(at);
    const auto found = text ? std::find(names.begin(), names.end(), *text) : names.end();
    if (found == names.end()) return add_error(at, expected), false;
    out = static_cast<Value>(found - names.begin());
    return true;
  }

  template <typename Value>
  static void add_new(std::vector<Value>& values, Value value) {
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  }

  bool check_pattern(std::uint32_t at, const std::string& pattern) {
    constexpr std::size_t kMaxInstructions = 40'000;
    if (pattern.size() > kMaxPatternBytes) return add_error(at, "a pattern of at most 1024 bytes"), false;
    if (instructions_ > kMaxInstructions)
      return add_error(at, "simpler patterns: together they exceed the size limit"), false;
    RE2::Options limits(RE2::Quiet);
    limits.set_max_mem(kMaxPatternMemory);
    const RE2 compiled(pattern, limits);
    const bool too_large = compiled.error_code() == RE2::ErrorPatternTooLarge;
    if (compiled.ok()) instructions_ += static_cast<std::size_t>(compiled.ProgramSize());
    if (too_large) instructions_ = kMaxInstructions + 1;  // this pattern alone exceeds the limit
    if (!compiled.ok()) add_error(at, "a pattern that RE2 accepts (" + excerpt(compiled.error()) + ")");
    return compiled.ok();
  }

  void warn_unknown(std::uint32_t at, const std::vector<std::string_view>& names) {
    const auto key = json_.key(at);
    if (warnings_.size() >= kMaxReports || key.rfind("//", 0) == 0) return;
    const std::string text = "unknown key " + excerpt(json_.key_literal(at)) + suggestion(key, names);
    auto place = place_of(key_offset(at), at);
    place.pointer.clear();
    warnings_.push_back({std::move(place), text, text});
  }

  void warn_unknown_op(std::uint32_t at, const std::string& name) {
    const std::string hint = suggestion(name, {kOpNames.begin(), kOpNames.end()});
    std::string all;
    for (const std::string_view op : kOpNames) all += (all.empty() ? "" : ", ") + std::string(op);
    const std::string unknown = "unknown op " + literal(at);
    warn(at, unknown + hint + " ignored", unknown + (hint.empty() ? ", expected " + all : hint));
  }

  static std::string suggestion(std::string_view name, const std::vector<std::string_view>& candidates) {
    const auto near = nearest(name, candidates);
    return near.empty() ? "" : " (did you mean \"" + std::string(near) + "\"?)";
  }

  void warn(std::uint32_t at, std::string text, std::string unknown = {}) {
    if (warnings_.size() >= kMaxReports) return;
    warnings_.push_back({place_of(json_.nodes[at].value.begin, at), std::move(text), std::move(unknown)});
  }

  void add_error(std::uint32_t at, std::string_view expected) {
    error_at(json_.nodes[at].value.begin, at, literal(at), std::string(expected));
  }

  void error_at(std::size_t offset, std::uint32_t at, std::string found, std::string expected) {
    ++refused_;
    if (errors_.size() >= kMaxReports) return;
    errors_.push_back({place_of(offset, at), std::move(found), std::move(expected)});
  }

  ConfigPlace place_of(std::size_t offset, std::uint32_t at) const {
    const auto place = json_.place_of(offset);
    return {std::string(file_), place.line, place.column, json_.pointer_to(at)};
  }

  template <typename Value>
  std::optional<Value> as(std::uint32_t at) const {
    auto value = json_.scalar(at);
    auto* const found = std::get_if<Value>(&value);
    return found == nullptr ? std::nullopt : std::optional<Value>(std::move(*found));
  }
  std::string literal(std::uint32_t at) const {
    if (kind(at) == JsonKind::object) return "an object";
    if (kind(at) == JsonKind::array) return json_.nodes[at].children == 0 ? "an empty list" : "a list";
    return excerpt(json_.literal(at));
  }
  JsonKind kind(std::uint32_t at) const { return json_.nodes[at].kind; }
  std::size_t key_offset(std::uint32_t at) const { return json_.nodes[at].key.begin; }

  const JsonText& json_;
  const std::string_view file_;
  Config config_;
  std::vector<ConfigError> errors_;
  std::vector<ConfigWarning> warnings_;
  std::size_t refused_ = 0;       // number of errors, including those beyond kMaxReports
  std::size_t instructions_ = 0;  // RE2 program size of all patterns so far
  bool within_collect_ = false;
};

std::string text_of(const ConfigPlace& place) {
  return place.file + ":" + std::to_string(place.line) + ":" + std::to_string(place.column) + ": " +
         (place.pointer.empty() ? "" : excerpt(place.pointer) + ": ");
}

}  // namespace

ConfigResult parse_config(const JsonText& json, std::string_view file_name) {
  const auto failed = [&](std::size_t offset, std::string found, std::string expected) {
    const auto at = json.place_of(offset);
    const ConfigPlace place{std::string(file_name), at.line, at.column, ""};
    return tl::unexpected(std::vector{ConfigError{place, std::move(found), std::move(expected)}});
  };
  try {
    if (json.fault) return failed(json.fault->offset, json.fault->found, json.fault->expected);
    return Reader(json, file_name).run();
  } catch (const std::exception& exception) {
    return failed(0, exception.what(), "valid JSON");
  }
}

ConfigResult parse_config(std::string_view text, std::string_view file_name) {
  return parse_config(JsonText(std::string(text)), file_name);
}

std::string to_string(const ConfigError& error) {
  return text_of(error.place) + found_and_expected(error.found, error.expected);
}

std::string to_string(const ConfigWarning& warning) { return text_of(warning.place) + warning.text; }

std::string to_string(const std::vector<ConfigError>& errors) {
  std::string text;
  for (const auto& error : errors) text += (text.empty() ? "" : "\n") + to_string(error);
  return text;
}

}  // namespace gradmon

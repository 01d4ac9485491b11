// SPDX-License-Identifier: Apache-2.0
#include "control/config/config_parser.h"

#include <re2/re2.h>
#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <utility>
#include <variant>

#include "control/config/config_schema.h"
#include "control/config/json_locate.h"
#include "control/text/output_names.h"

namespace gradmon {
namespace {

// A decoded scalar; monostate for null, objects and arrays.
using JsonScalar = std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string>;

// A JSON text, the positions of its values, and the decoded scalars.
struct JsonTree {
  std::string_view text;
  JsonDocument document;
  std::vector<JsonScalar> scalars;  // one for each node of `document`
};

struct ConfigReading {
  Config config;  // meaningless after errors
  std::vector<ConfigError> errors;
  std::vector<ConfigWarning> warnings;
};

constexpr std::size_t kMaxReports = 100;

// Fills a Config from JSON values by the tables of config_schema.h, and collects all errors and
// warnings. Uses no JSON library. Pure; any thread.
class Reader {
 public:
  Reader(const JsonTree& tree, std::string_view file) : tree_(tree), file_(file) {}

  ConfigReading run() {
    report_duplicates();
    read_part(0, "one JSON object", out_.config);
    if (out_.config.forward_only && out_.config.backward_only) {
      const auto key = find_member(tree_.document, tree_.text, 0, "backward_only");
      warn(key.value_or(0), "forward_only and backward_only are both true: no activations are collected");
    }
    if (const auto key = find_member(tree_.document, tree_.text, 0, "ndigits"); key && out_.config.digits)
      warn(*key, "no effect: \"digits\" is set");
    if (out_.config.ur_distribution) warn_of_histograms();
    return std::move(out_);
  }

 private:
  void report_duplicates() {
    const auto duplicates = duplicate_keys(tree_.document, tree_.text);
    for (const auto& [first, second] : duplicates) {
      if (out_.errors.size() >= kMaxReports) break;  // each place is counted from the start of the text
      const auto at = line_column(tree_.text, key_offset(first));
      error_at(key_offset(second), second,
               "duplicate key " + excerpt(node(second).key.of(tree_.text)) + " (first at " +
                   std::to_string(at.line) + ":" + std::to_string(at.column) + ")",
               "");
    }
    refused_ = duplicates.size();
  }

  void warn_of_histograms() {
    const auto at = find_member(tree_.document, tree_.text, 0, "ur_distribution").value_or(0);
    const auto& formats = out_.config.format;
    if (std::find(formats.begin(), formats.end(), Config::Format::tensorboard) == formats.end()) {
      warn(at, "histograms need \"tensorboard\" in \"format\": none are collected");
    } else if (formats.size() > 1) {
      warn(at, "of the formats only \"tensorboard\" holds histograms");
    }
  }

  template <typename Part>
  void read_part(std::uint32_t object, std::string_view expected, Part& part) {
    if (node(object).kind != JsonKind::object) return add_error(object, expected);
    read_object(object, options<Part>(), part);
  }

  template <typename Part>
  void read_object(std::uint32_t object, const std::vector<Option<Part>>& options_of_part, Part& part) {
    for_children(object, [&](std::uint32_t child) {
      const auto key = key_of(child);
      std::vector<std::string_view> names;
      for (const auto& option : options_of_part) {
        if (option.name == key) return read_option(child, option, part);
        names.push_back(option.name);
      }
      warn_unknown(child, names);
    });
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
    const auto* const value = std::get_if<Value>(&scalar(at));
    if (value == nullptr) return add_error(at, wanted.expected);
    out = *value;
  }

  void read(std::uint32_t at, const Constraint& wanted, std::int64_t& out) {
    constexpr double kTooLarge = 9223372036854775808.0;
    const auto& value = scalar(at);
    const auto* real = std::get_if<double>(&value);
    const bool whole = real != nullptr && std::trunc(*real) == *real;
    if (std::holds_alternative<std::uint64_t>(value) || (whole && std::abs(*real) >= kTooLarge)) {
      return add_error(at, std::string(wanted.expected) + " and < 2^63");
    }
    const auto* integer = std::get_if<std::int64_t>(&value);
    if (integer == nullptr && !whole) return add_error(at, wanted.expected);
    const auto number = integer != nullptr ? *integer : static_cast<std::int64_t>(*real);
    if (number < wanted.low || number > wanted.high) return add_error(at, wanted.expected);
    out = number;
  }

  void read(std::uint32_t at, const Constraint& wanted, double& out) {
    const auto number = number_at(at);
    if (!number) return add_error(at, wanted.expected);
    if (std::isinf(*number)) return add_error(at, std::string(wanted.expected) + " that fits in 64 bits");
    const auto low = static_cast<double>(wanted.low);
    const bool above = *number > low || (wanted.rule == Rule::inclusive_low && *number >= low);
    const bool below = wanted.high == kUnbounded || *number <= static_cast<double>(wanted.high);
    if (!above || !below) return add_error(at, wanted.expected);
    out = *number;
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
    const bool too_many = patterns && node(at).children > kMaxPatterns;
    const bool times = wanted.rule == Rule::zero_or_two;
    const bool odd = times && node(at).children != 0 && node(at).children != 2;
    const bool command = wanted.rule == Rule::command;
    const bool too_long = command && node(at).children > kMaxArguments;
    if (too_many || odd || too_long) return add_error(at, wanted.expected);
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
      if (read_whole(item, Constraint{"an integer >= 0", Rule::range, wanted.low, wanted.high}, value)) {
        out.push_back(value);
      }
    });
  }

  void read(std::uint32_t at, const Constraint& wanted, std::vector<Op>& out) {
    std::vector<Op> ops;
    const auto errors = out_.errors.size();
    read_list(at, wanted, [&](std::uint32_t item) {
      std::string name;
      if (!read_whole(item, Constraint{"a string"}, name)) return;
      const auto found = std::find(kOpNames.begin(), kOpNames.end(), name);
      if (found == kOpNames.end()) {
        return warn_unknown_op(item, name);
      }
      const auto op = static_cast<Op>(found - kOpNames.begin());
      if (std::find(ops.begin(), ops.end(), op) == ops.end()) ops.push_back(op);
    });
    if (out_.errors.size() > errors) return;
    if (ops.empty()) warn(at, "no valid op: using \"norm\"");
    out = ops.empty() ? std::vector<Op>{Op::norm} : std::move(ops);
  }

  void read(std::uint32_t at, const Constraint& wanted, std::vector<Config::Format>& out) {
    std::vector<Config::Format> formats;
    const auto read_one = [&](std::uint32_t item) {
      Config::Format format{};
      const auto errors = out_.errors.size();
      read_name(item, "\"csv\", \"tensorboard\", \"api\" or \"sqlite\"", kFormatNames, format);
      if (out_.errors.size() > errors) return;
      if (std::find(formats.begin(), formats.end(), format) == formats.end()) formats.push_back(format);
    };
    if (node(at).kind == JsonKind::string) {
      read_one(at);
    } else if (node(at).children == 0) {
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
    const auto* text = std::get_if<std::string>(&scalar(at));
    const auto* flag = std::get_if<bool>(&scalar(at));
    if (text != nullptr && *text == "auto") {
      out = CausalMask::automatic;
    } else if (flag != nullptr) {
      out = *flag ? CausalMask::yes : CausalMask::no;
    } else {
      add_error(at, wanted.expected);
    }
  }

  void read(std::uint32_t at, const Constraint& wanted, std::vector<Config::Target>& out) {
    if (node(at).kind != JsonKind::object || node(at).children > kMaxTargets)
      return add_error(at, wanted.expected);
    out.clear();
    for_children(at, [&](std::uint32_t child) {
      Config::Target target;
      target.name = key_of(child);
      read_part(child, "an object, as {} or {\"input\": \"tensor\"}", target);
      out.push_back(std::move(target));
    });
  }

  void read(std::uint32_t at, const Constraint& wanted, Config::Selection& out) {
    static const RE2 tuple(R"(tuple\[(\d{1,9})\](?::(\d{1,9}))?)");
    const auto* text = std::get_if<std::string>(&scalar(at));
    if (text == nullptr) return add_error(at, wanted.expected);
    if (*text == "tensor") return;
    std::int64_t size = 0;
    std::string given;
    if (!RE2::FullMatch(*text, tuple, &size, &given)) return add_error(at, wanted.expected);
    const std::int64_t index = given.empty() ? 0 : std::stoll(given);
    if (index >= size) return add_error(at, "an element index below the size of the tuple");
    out = {size, index};
  }

  void read(std::uint32_t at, const Constraint& wanted, Config::CcDistribution& out) {
    read_part(at, wanted.expected, out);
  }
  void read(std::uint32_t at, const Constraint& wanted, Config::L2Targets& out) {
    read_part(at, wanted.expected, out);
  }
  void read(std::uint32_t at, const Constraint& wanted, Config::Alert& out) {
    read_part(at, wanted.expected, out);
  }
  void read(std::uint32_t at, const Constraint& wanted, Config::OnAlert& out) {
    if (within_collect_) return add_error(at, "no \"on_alert\" within \"collect\"");
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
    if (node(at).children > kMostAlertRules) return add_error(at, wanted.expected);
    read_list(at, wanted, [&](std::uint32_t item) { read_rule(item, out); });
  }

  void read_rule(std::uint32_t at, std::vector<AlertRule>& out) {
    const auto name = member(at, "rule_name");
    const auto args = member(at, "args");
    if (!name) return add_error(at, "an object with \"rule_name\" and \"args\"");
    const auto errors = refused_;
    AlertRule rule;
    read(*name, {}, rule.anomaly);
    if (args && node(*args).kind != JsonKind::object) add_error(*args, "an object");
    for_children(at, [&](std::uint32_t child) {
      if (child != *name && child != args) warn_unknown(child, {"rule_name", "args"});
    });
    if (refused_ > errors) return;
    const AlertRuleSchema& schema = alert_rule_schemas()[static_cast<std::size_t>(rule.anomaly)];
    if (args) read_object(*args, schema.args, rule);
    const bool lacks = !schema.required.empty() && !(args && member(*args, schema.required));
    if (lacks)
      return add_error(args.value_or(at), "\"args\" with a \"" + std::string(schema.required) + "\"");
    if (refused_ == errors) out.push_back(rule);
  }

  void read(std::uint32_t at, const Constraint&, Anomaly& out) {
    const auto* text = std::get_if<std::string>(&scalar(at));
    const auto found = std::find(kAnomalyNames.begin(), kAnomalyNames.end(), text == nullptr ? "" : *text);
    if (found != kAnomalyNames.end())
      return static_cast<void>(out = static_cast<Anomaly>(found - kAnomalyNames.begin()));
    std::string expected;
    for (const char* name : kAnomalyNames) {
      const char* const separator = std::string_view(name) == kAnomalyNames.back() ? " or " : ", ";
      expected += (expected.empty() ? "\"" : std::string(separator) + "\"") + name + '"';
    }
    const std::vector<std::string_view> names{kAnomalyNames.begin(), kAnomalyNames.end()};
    add_error(at, expected + (text == nullptr ? "" : suggestion(*text, names)));
  }

  void read(std::uint32_t at, const Constraint& wanted, std::vector<Config::Scalar>& out) {
    if (node(at).kind != JsonKind::object) return add_error(at, wanted.expected);
    for_children(at, [&](std::uint32_t child) {
      Config::Scalar entry;
      entry.name = key_of(child);
      const auto read_one = [&](std::uint32_t item) {
        const auto* value = std::get_if<std::string>(&scalar(item));
        if (value == nullptr || (*value != "log" && *value != "records")) {
          return add_error(item, "\"log\", \"records\" or a list of both");
        }
        (*value == "log" ? entry.log : entry.records) = true;
      };
      if (node(child).kind == JsonKind::array) {
        for_children(child, read_one);
      } else {
        read_one(child);
      }
      out.push_back(std::move(entry));
    });
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
    if (node(at).kind != JsonKind::array) return add_error(at, wanted.expected);
    for_children(at, read_item);
  }

  template <std::size_t N, typename Value>
  void read_name(std::uint32_t at, std::string_view expected, const std::array<std::string_view, N>& names,
                 Value& out) {
    const auto* text = std::get_if<std::string>(&scalar(at));
    const auto found = text == nullptr ? names.end() : std::find(names.begin(), names.end(), *text);
    if (found == names.end()) return add_error(at, expected);
    out = static_cast<Value>(found - names.begin());
  }

  bool check_pattern(std::uint32_t at, const std::string& pattern) {
    constexpr std::size_t kMaxInstructions = 40'000;
    if (pattern.size() > kMaxPatternBytes) {
      add_error(at, "a pattern of at most 1024 bytes");
      return false;
    }
    if (instructions_ > kMaxInstructions) {
      add_error(at, "simpler patterns: together they exceed the size limit");
      return false;
    }
    RE2::Options limits(RE2::Quiet);
    limits.set_max_mem(kMaxPatternMemory);
    const RE2 compiled(pattern, limits);
    const bool too_large = compiled.error_code() == RE2::ErrorPatternTooLarge;
    if (compiled.ok()) instructions_ += static_cast<std::size_t>(compiled.ProgramSize());
    if (too_large) instructions_ = kMaxInstructions + 1;  // this pattern alone exceeds the limit
    if (!compiled.ok()) add_error(at, "a pattern that RE2 accepts (" + excerpt(compiled.error()) + ")");
    return compiled.ok();
  }

  std::optional<double> number_at(std::uint32_t at) const {
    const auto& value = scalar(at);
    if (const auto* real = std::get_if<double>(&value)) return *real;
    if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
    if (const auto* integer = std::get_if<std::uint64_t>(&value)) return static_cast<double>(*integer);
    return std::nullopt;
  }

  void warn_unknown(std::uint32_t at, const std::vector<std::string_view>& names) {
    if (out_.warnings.size() >= kMaxReports || key_of(at).rfind("//", 0) == 0) return;
    const auto place = line_column(tree_.text, key_offset(at));
    const std::string text =
        "unknown key " + excerpt(node(at).key.of(tree_.text)) + suggestion(key_of(at), names);
    out_.warnings.push_back({{std::string(file_), place.line, place.column, ""}, text, text});
  }

  void warn_unknown_op(std::uint32_t at, const std::string& name) {
    if (out_.warnings.size() >= kMaxReports) return;
    const std::string hint = suggestion(name, {kOpNames.begin(), kOpNames.end()});
    std::string all;
    for (const std::string_view op : kOpNames) all += (all.empty() ? "" : ", ") + std::string(op);
    const std::string unknown = "unknown op " + literal(at);
    warn(at, unknown + hint + " ignored");
    out_.warnings.back().unknown = unknown + (hint.empty() ? ", expected " + all : hint);
  }

  static std::string suggestion(std::string_view name, const std::vector<std::string_view>& candidates) {
    const auto near = nearest(name, candidates);
    return near.empty() ? "" : " (did you mean \"" + std::string(near) + "\"?)";
  }

  void warn(std::uint32_t at, std::string text) {
    if (out_.warnings.size() >= kMaxReports) return;
    out_.warnings.push_back({place_of(node(at).value.begin, at), std::move(text)});
  }

  void add_error(std::uint32_t at, std::string_view expected) {
    error_at(node(at).value.begin, at, literal(at), std::string(expected));
  }

  void error_at(std::size_t offset, std::uint32_t at, std::string found, std::string expected) {
    ++refused_;
    if (out_.errors.size() >= kMaxReports) return;
    out_.errors.push_back({place_of(offset, at), std::move(found), std::move(expected)});
  }

  ConfigPlace place_of(std::size_t offset, std::uint32_t at) const {
    const auto place = line_column(tree_.text, offset);
    return {std::string(file_), place.line, place.column, json_pointer_to(tree_.document, tree_.text, at)};
  }

  template <typename Visit>
  void for_children(std::uint32_t at, Visit visit) const {
    if (node(at).children == 0) return;
    for (auto i = at + 1; i != kNoJsonNode; i = node(i).next) visit(i);
  }

  std::optional<std::uint32_t> member(std::uint32_t at, std::string_view key) const {
    return find_member(tree_.document, tree_.text, at, key);
  }
  std::string literal(std::uint32_t at) const {
    if (node(at).kind == JsonKind::object) return "an object";
    if (node(at).kind == JsonKind::array) return node(at).children == 0 ? "an empty list" : "a list";
    return excerpt(node(at).value.of(tree_.text));
  }
  std::string key_of(std::uint32_t at) const { return decode_string(node(at).key.of(tree_.text)); }
  std::size_t key_offset(std::uint32_t at) const { return node(at).key.begin; }
  const JsonNode& node(std::uint32_t at) const { return tree_.document.nodes[at]; }
  const JsonScalar& scalar(std::uint32_t at) const { return tree_.scalars[at]; }

  const JsonTree& tree_;
  const std::string_view file_;
  ConfigReading out_;
  std::size_t refused_ = 0;       // number of errors, including those beyond kMaxReports
  std::size_t instructions_ = 0;  // RE2 program size of all patterns so far
  bool within_collect_ = false;
};

using Result = tl::expected<ParsedConfig, std::vector<ConfigError>>;
namespace dom = simdjson::dom;

// Appends the values in the order of JsonDocument::nodes. kMaxJsonDepth bounds the recursion.
void collect(dom::element element, std::vector<JsonScalar>& out) {
  out.emplace_back();
  const auto index = out.size() - 1;
  switch (element.type()) {
    case dom::element_type::OBJECT:
      for (const auto field : dom::object(element)) collect(field.value, out);
      break;
    case dom::element_type::ARRAY:
      for (const auto item : dom::array(element)) collect(item, out);
      break;
    case dom::element_type::STRING:
      out[index] = std::string(std::string_view(element));
      break;
    case dom::element_type::INT64:
      out[index] = std::int64_t(element);
      break;
    case dom::element_type::UINT64:
      out[index] = std::uint64_t(element);
      break;
    case dom::element_type::DOUBLE:
      out[index] = double(element);
      break;
    case dom::element_type::BOOL:
      out[index] = bool(element);
      break;
    default:
      break;
  }
}

ConfigError document_error(std::string_view text, std::string_view file, const JsonFault& fault) {
  const auto place = line_column(text, fault.offset);
  return {{std::string(file), place.line, place.column, ""}, fault.found, fault.expected};
}

Result parse(std::string_view text, std::string_view file) {
  JsonTree tree{text, locate_json(text), {}};
  const auto& document = tree.document;
  if (document.fault) return tl::unexpected(std::vector{document_error(text, file, *document.fault)});
  // simdjson refuses a text with an oversized number: replaces the number by zero.
  std::string readable(text);
  std::vector<std::pair<std::size_t, double>> oversized;
  for (std::size_t i = 0; i < document.nodes.size(); ++i) {
    const auto& [begin, end] = document.nodes[i].value;
    if (document.nodes[i].kind != JsonKind::number) continue;
    const auto value = oversized_number(text.substr(begin, end - begin));
    if (!value) continue;
    oversized.emplace_back(i, *value);
    readable.replace(begin, end - begin, std::string(end - begin - 1, ' ') + '0');
  }
  dom::parser parser(kMaxJsonBytes);
  dom::element root;
  const simdjson::padded_string body(std::string_view(readable).substr(byte_order_mark_bytes(text)));
  if (const auto error = parser.parse(body).get(root)) {
    return tl::unexpected(
        std::vector{document_error(text, file, {0, simdjson::error_message(error), "valid JSON"})});
  }
  tree.scalars.reserve(document.nodes.size());
  collect(root, tree.scalars);
  if (tree.scalars.size() != document.nodes.size()) {
    return tl::unexpected(
        std::vector{document_error(text, file, {0, "JSON that two parsers read differently", "valid JSON"})});
  }
  for (const auto& [node, value] : oversized) tree.scalars[node] = value;
  auto reading = Reader(tree, file).run();
  if (!reading.errors.empty()) return tl::unexpected(std::move(reading.errors));
  return ParsedConfig{std::move(reading.config), std::move(reading.warnings)};
}

std::string text_of(const ConfigPlace& place) {
  return place.file + ":" + std::to_string(place.line) + ":" + std::to_string(place.column) + ": " +
         (place.pointer.empty() ? "" : excerpt(place.pointer) + ": ");
}

}  // namespace

Result parse_config(std::string_view text, std::string_view file_name) {
  try {
    return parse(text, file_name);
  } catch (const std::exception& exception) {
    return tl::unexpected(std::vector{document_error(text, file_name, {0, exception.what(), "valid JSON"})});
  }
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

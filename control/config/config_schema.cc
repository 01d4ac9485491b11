// SPDX-License-Identifier: Apache-2.0
#include "control/config/config_schema.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "control/text/words.h"

namespace gradmon {
namespace {

constexpr auto live = Reload::live;
constexpr auto restart = Reload::restart;
constexpr auto range = Rule::range;
constexpr auto inclusive_low = Rule::inclusive_low;

// "a list of "min", "max" ..."
std::string list_of_ops() {
  std::string text;
  for (const auto name : kOpNames) text += (text.empty() ? "a list of \"" : "\", \"") + std::string(name);
  return text + "\"";
}

const std::string kListOfOps = list_of_ops();

const Option<Config> kConfigOptions[] = {
    {"targets", &Config::targets, "an object of at most 4096 names", "{}",
     "modules and parameters to watch; empty: everything"},
    {"target_regex", &Config::target_regex, "a list of at most 256 patterns", "none",
     "names or RE2 patterns, searched in parameter names", kAny, kUnbounded, Rule::patterns},
    {"invert", &Config::invert, "true or false", "false", "watch what target_regex does not match"},
    {"dynamic_on", &Config::dynamic_on, "true or false", "false", "dynamic mode: whether collection is on"},
    {"collect_times", &Config::collect_times, "an integer >= 0", "100000000",
     "number of steps to collect; 0: none, and a collection ends", 0},
    {"start_step", &Config::start_step, "an integer >= 0", "0",
     "static mode: first step collected, of those that step_interval leaves", 0},
    {"step_interval", &Config::step_interval, "an integer >= 1", "1", "collect every Nth step", 1},
    {"print_struct", &Config::print_struct, "true or false", "false",
     "write the module structure after the first collected step, then report that training may stop"},
    {"module_ranks", &Config::module_ranks, "a list of integers >= 0", "all",
     "ranks on which modules are watched", 0},
    {"xy_distribution", &Config::xy_distribution, "true or false", "false",
     "activations and their gradients"},
    {"all_xy", &Config::all_xy, "true or false", "false",
     "with xy_distribution: also of modules that targets does not name"},
    {"forward_only", &Config::forward_only, "true or false", "false",
     "activations: inputs and outputs, not their gradients"},
    {"backward_only", &Config::backward_only, "true or false", "false", "activations: gradients only"},
    {"wg_distribution", &Config::wg_distribution, "true or false", "false",
     "weight gradients, before and after reduction"},
    {"monitor_mbs_grad", &Config::monitor_mbs_grad, "true or false", "false",
     "unreduced gradients per micro batch"},
    {"mv_distribution", &Config::mv_distribution, "true or false", "false", "optimizer moments"},
    {"param_distribution", &Config::param_distribution, "true or false", "false",
     "weights, before and after the update"},
    {"ur_distribution", &Config::ur_distribution, "true or false", "false",
     "histograms of Adam's update and ratio vectors, in TensorBoard only"},
    {"mg_direction", &Config::mg_direction, "true or false", "false",
     "share of elements in which gradient and momentum agree in sign"},
    {"cc_distribution", &Config::cc_distribution, "an object", "{}", "collective communication"},
    {"stack_info", &Config::stack_info, "true or false", "false", "call stack of every watched module"},
    {"l2_targets", &Config::l2_targets, "an object", "{}", "modules for the L2 features"},
    {"recording_l2_features", &Config::recording_l2_features, "true or false", "false",
     "collect the L2 features"},
    {"sa_order", &Config::sa_order, "\"s,b,h,d\" or \"b,s,h,d\"", "\"s,b,h,d\"", "axis order of Q and K"},
    {"sa_causal", &Config::sa_causal, "\"auto\", true or false", "\"auto\"", "whether attention is masked"},
    {"alert", &Config::alert, "an object", "{}", "rules that raise an alert"},
    {"format", &Config::format, "\"csv\", \"tensorboard\", \"api\", \"sqlite\" or a list of these", "\"csv\"",
     "where records go"},
    {"ops", &Config::ops, kListOfOps, "[\"norm\"]", "statistics per tensor"},
    {"eps", &Config::eps, "a number > 0", "1e-8", "magnitudes below this count as zeros", 0},
    {"ndigits", &Config::ndigits, "an integer from 0 to 100", "6", "decimals in CSV", 0, 100},
    {"digits", &Config::digits, "an integer from 1 to 17", "none",
     "significant digits in CSV, instead of decimals: ndigits then has no effect", 1, 17},
    {"compress", &Config::compress, "\"none\" or \"zstd\"", "\"none\"",
     "zstd: CSV files are {name}.csv.zst, a fourth to a tenth of the size"},
    {"step_count_per_record", &Config::step_count_per_record, "an integer >= 1", "1", "steps per CSV file",
     1},
    {"append_output", &Config::append_output, "a list of zero or two time stamps", "[]",
     "go on in the rank's newest directory between them, such as [\"Dec03_21-34-40\", \"Dec04_00-00-00\"]",
     kAny, kUnbounded, Rule::zero_or_two, restart},
    {"squash_name", &Config::squash_name, "true or false", "true", "shorten names"},
    {"replicas", &Config::replicas, "\"all\" or \"first\"", "\"all\"",
     "first: of ranks with equal weights, reduced gradients, moments and mg_direction (plain "
     "DistributedDataParallel), only the first in module_ranks writes these"},
    {"tags", &Config::tags, "\"gradmon\" or \"msprobe\"", "\"gradmon\"",
     "form of TensorBoard's tags: \"grad_reduced_norm/fc1.weight\", or "
     "\"0:fc1.weight/rank0/post_grad_norm\""},
    {"reuse_readings", &Config::reuse_readings, "true or false", "false",
     "activations: read a tensor once if several modules receive or return it; faster, but misses a write "
     "that keeps the tensor's version (.data, NumPy, a kernel)"},
    {"sample", &Config::sample, "an integer from 1 to 64", "1",
     "of a tensor above 1 MiB in CPU memory, read one of so many blocks of 4 KiB, and estimate the "
     "statistics; 1: read all",
     1, kMostSample},
    {"lookahead_steps", &Config::lookahead_steps, "an integer >= 1", "measured",
     "steps between the agreement on a change and its effect", 1},
    {"max_wait", &Config::max_wait, "a number of seconds > 0", "2", "longest wait of training for a verdict",
     0},
    {"fence_timeout", &Config::fence_timeout, "a number of seconds > 0", "30", "no effect: see max_wait", 0,
     kUnbounded, range, live, Support::obsolete},
    {"on_partition", &Config::on_partition, "\"continue\" or \"wait\"", "\"continue\"",
     "no effect: see max_wait", kAny, kUnbounded, range, live, Support::obsolete},
    {"queue_capacity", &Config::queue_capacity, "an integer from 1 to 16777216", "65536",
     "rows that wait for the writer; a longer step waits alone", 1, 1 << 24, range, restart},
    {"on_overflow", &Config::on_overflow, "\"block\" or \"drop\"", "\"block\"",
     "full queue: wait, or drop the step and count"},
    {"max_overhead", &Config::max_overhead, "a number > 0 and <= 1", "none",
     "share of the step time that monitoring may cost", 0, 1},
    {"keep_last", &Config::keep_last, "an integer >= 0", "0",
     "steps of gradient norms and scalars kept in memory, written when a rule of alert fires", 0},
    {"on_alert", &Config::on_alert, "an object", "none", "actions on an alert"},
    {"scalars", &Config::scalars, "an object", "{}",
     "where training scalars go, as {\"loss\": [\"log\", \"records\"]}"},
    {"throughput_baseline", &Config::throughput_baseline, "a number > 0", "none",
     "samples per second per device, for linearity", 0},
    {"write_back", &Config::write_back, "true or false", "true", "false: the file is never touched"},
};

}  // namespace

const std::vector<Option<Config>>& table(const Config*) {
  static const std::vector<Option<Config>> table(std::begin(kConfigOptions), std::end(kConfigOptions));
  return table;
}

const std::vector<Option<Config::Target>>& table(const Config::Target*) {
  using T = Config::Target;
  constexpr std::string_view expected = "\"tensor\" or \"tuple[N]:i\"";
  static const std::vector<Option<T>> table{
      {"input", &T::input, expected, "none", "a module's input"},
      {"output", &T::output, expected, "none", "a module's output"},
      {"input_grad", &T::input_grad, expected, "none", "gradient of a module's input"},
      {"output_grad", &T::output_grad, expected, "none", "gradient of a module's output"},
  };
  return table;
}

const std::vector<Option<Config::CcDistribution>>& table(const Config::CcDistribution*) {
  using C = Config::CcDistribution;
  static const std::vector<Option<C>> table{
      {"enable", &C::enable, "true or false", "false", "watch collective calls"},
      {"cc_codeline", &C::cc_codeline, "a list of patterns as \"train.py\\\\[23\\\\]\"", "[]",
       "call sites; empty: all", kAny, kUnbounded, Rule::patterns},
      {"cc_pre_hook", &C::cc_pre_hook, "true or false", "false", "record inputs as well"},
      {"cc_log_only", &C::cc_log_only, "true or false", "false",
       "log the calls of one step, then report that training may stop"},
  };
  return table;
}

const std::vector<Option<Config::L2Targets>>& table(const Config::L2Targets*) {
  using L = Config::L2Targets;
  constexpr std::string_view expected = "a list of module names";
  static const std::vector<Option<L>> table{
      {"attention_hook", &L::attention_hook, expected, "[]", "attention modules"},
      {"linear_hook", &L::linear_hook, expected, "none",
       "linear modules; empty: every one with a 2-D weight or wg"},
      {"moe_router_weight_hook", &L::moe_router_weight_hook, expected, "[]", "routers: weights"},
      {"moe_router_logit_hook", &L::moe_router_logit_hook, expected, "[]", "routers: logits"},
  };
  return table;
}

const std::vector<Option<Config::Alert>>& table(const Config::Alert*) {
  using A = Config::Alert;
  static const std::vector<Option<A>> table{
      {"rules", &A::rules, "a list of at most 8 rules", "[]",
       "tried in order: for each value the first rule that fires is reported"},
      {"dump", &A::dump, "true or false", "false", "write the events to anomaly_detected"},
  };
  return table;
}

const std::vector<AlertRuleSchema>& alert_rule_schemas() {
  using R = AlertRule;
  const Option<R> window{
      "window",        &R::window,    "an integer from 16 to 256", "64", "values that make the median",
      kShortestWindow, kLongestWindow};
  static const std::vector<AlertRuleSchema> schemas{
      {Anomaly::turbulence,
       "a norm or mean is far above the mean of its history",
       {{"threshold", &R::threshold, "a number >= 0", "required", "relative excess over the mean", 0,
         kUnbounded, inclusive_low}},
       "threshold"},
      {Anomaly::nan,
       "a value is NaN, or too large",
       {{"threshold", &R::threshold, "a number >= 0", "none", "largest magnitude", 0, kUnbounded,
         inclusive_low}},
       ""},
      {Anomaly::spike,
       "a norm or training scalar jumps up",
       {{"threshold", &R::threshold, "a number > 0", "10", "robust standard deviations above the median", 0},
        window},
       ""},
      {Anomaly::vanish,
       "a norm dies",
       {{"fraction", &R::fraction, "a number >= 0 and <= 1", "0.001", "of the median: a norm below it is low",
         0, 1, inclusive_low},
        {"steps", &R::steps, "an integer from 1 to 1000", "3", "collected steps in a row with a low norm", 1,
         1000},
        window},
       ""},
      {Anomaly::rank_divergence,
       "ranks that should hold the same values do not",
       {{"threshold", &R::threshold, "a number > 0", "1e-06", "relative difference of a statistic", 0}},
       ""},
  };
  return schemas;
}

const std::vector<Option<Config::OnAlert>>& table(const Config::OnAlert*) {
  using A = Config::OnAlert;
  static const std::vector<Option<A>> table{
      {"collect", &A::collect, "a config without \"on_alert\"", "none",
       "keys that replace those of this config for a while; dynamic mode only"},
      {"times", &A::times, "an integer >= 1", "1", "number of steps that `collect` collects", 1},
      {"cooldown", &A::cooldown, "a number of seconds >= 0", "60",
       "time after an action in which alerts do not start it again", 0, kUnbounded, inclusive_low},
      {"exec", &A::exec, "a list of at most 64 strings, the first an absolute path", "[]",
       "a program and its arguments; set it in the file only", kAny, kUnbounded, Rule::command},
  };
  return table;
}

std::string_view nearest(std::string_view name, const std::vector<std::string_view>& candidates) {
  std::string_view best;
  std::size_t least = std::min<std::size_t>(3, name.size() / 3 + 1) + 1;
  if (name.size() > 64) return best;
  for (const auto candidate : candidates) {
    const auto distance = edit_distance(name, candidate, least);
    if (distance < least && distance < candidate.size()) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

std::vector<std::string_view> changed_restart_keys(const Config& running, const Config& wanted) {
  std::vector<std::string_view> changed;
  for (const auto& option : options<Config>()) {
    if (option.reload != restart) continue;
    if (std::visit([&](auto field) { return !(running.*field == wanted.*field); }, option.field)) {
      changed.push_back(option.name);
    }
  }
  return changed;
}

bool writes_format(const Config& config, Config::Format format) {
  return std::find(config.format.begin(), config.format.end(), format) != config.format.end();
}

bool collects_histograms(const Config& config) {
  return config.ur_distribution && writes_format(config, Config::Format::tensorboard);
}

bool collects_anything(const Config& config) {
  const bool activations = config.xy_distribution && !(config.forward_only && config.backward_only);
  const auto& rules = config.alert.rules;
  const bool divergence = std::any_of(rules.begin(), rules.end(), [](const AlertRule& rule) {
    return rule.anomaly == Anomaly::rank_divergence;
  });
  return activations || config.wg_distribution || config.mv_distribution || config.param_distribution ||
         config.mg_direction || collects_histograms(config) || config.cc_distribution.enable ||
         config.recording_l2_features || config.print_struct || config.stack_info ||
         !config.scalars.empty() || divergence || (config.keep_last > 0 && !rules.empty());
}

std::string config_reference() {
  std::string text;
  const auto padded = [&text](std::string_view cell, std::size_t width) {
    text += cell;
    text.append(cell.size() < width ? width - cell.size() : 0, ' ');
    text += "  ";
  };
  for (const auto& option : options<Config>()) {
    padded(option.name, 22);
    padded(option.default_text, 10);
    text += std::string(option.meaning) + " (" + std::string(option.expected) + ")";
    if (option.reload == restart) text += "; a change takes effect at the next start";
    text += '\n';
  }
  return text;
}

namespace {

using Json = nlohmann::ordered_json;

// The pattern of time stamps that seconds_in_year() reads.
constexpr const char* kTimeStamp =
    "^(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)(0[1-9]|[12][0-9]|3[01])_([01][0-9]|2[0-3])-[0-5][0-9]"
    "-"
    "([0-5][0-9]|60)$";

template <typename Part>
Json schema_of_object(const std::vector<Option<Part>>& options_of_part);

template <typename Names>
Json one_of(const Names& names) {
  return {{"enum", names}};
}
Json list_of(Json item) { return {{"type", "array"}, {"items", std::move(item)}}; }
Json text() { return {{"type", "string"}}; }
Json any_of(Json first, Json second) {
  return {{"anyOf", Json::array({std::move(first), std::move(second)})}};
}

Json schema_of_number(const Constraint& bounds) {
  const bool inclusive = bounds.rule == Rule::inclusive_low;
  Json number{{"type", "number"}, {inclusive ? "minimum" : "exclusiveMinimum", bounds.low}};
  if (bounds.high != kUnbounded) number["maximum"] = static_cast<double>(bounds.high);
  return number;
}

Json schema_of_texts(const Constraint& bounds) {
  Json list = list_of(text());
  if (bounds.rule == Rule::patterns) {
    list["items"]["maxLength"] = kMaxPatternBytes;
    list["maxItems"] = kMaxPatterns;
  } else if (bounds.rule == Rule::zero_or_two) {
    list["items"]["pattern"] = kTimeStamp;
    list["anyOf"] = Json::array({{{"maxItems", 0}}, {{"minItems", 2}, {"maxItems", 2}}});
  } else if (bounds.rule == Rule::command) {
    list["items"] = Json::array({{{"type", "string"}, {"pattern", "^/[^\\x00]*$"}}});
    list["additionalItems"] = {{"type", "string"}, {"pattern", "^[^\\x00]*$"}};
    list["maxItems"] = kMaxArguments;
  }
  return list;
}

Json schema_of_rules() {
  Json by_name = Json::array();
  for (const AlertRuleSchema& rule : alert_rule_schemas()) {
    Json args = schema_of_object(rule.args);
    if (!rule.required.empty()) args["required"] = Json::array({rule.required});
    Json then{{"properties", {{"args", std::move(args)}}}};
    if (!rule.required.empty()) then["required"] = Json::array({"args"});
    by_name.push_back({{"if", {{"properties", {{"rule_name", {{"const", name_of(rule.anomaly)}}}}}}},
                       {"then", std::move(then)}});
  }
  Json rules =
      list_of({{"type", "object"},
               {"properties", {{"rule_name", one_of(kAnomalyNames)}, {"args", {{"type", "object"}}}}},
               {"required", Json::array({"rule_name"})},
               {"allOf", std::move(by_name)}});
  rules["maxItems"] = kMostAlertRules;
  return rules;
}

template <typename Value>
constexpr bool kIsOptional = false;
template <typename Value>
constexpr bool kIsOptional<std::optional<Value>> = true;

// The schema of a field of this type.
template <typename Value>
Json schema(const Constraint& bounds) {
  if constexpr (std::is_same_v<Value, bool>) {
    return {{"type", "boolean"}};
  } else if constexpr (std::is_same_v<Value, std::int64_t>) {
    return {{"type", "integer"}, {"minimum", bounds.low}, {"maximum", bounds.high}};
  } else if constexpr (std::is_same_v<Value, double> || std::is_same_v<Value, std::chrono::milliseconds>) {
    return schema_of_number(bounds);
  } else if constexpr (std::is_same_v<Value, std::string>) {
    return text();
  } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
    return schema_of_texts(bounds);
  } else if constexpr (std::is_same_v<Value, std::vector<std::int64_t>>) {
    return list_of(schema<std::int64_t>(bounds));
  } else if constexpr (std::is_same_v<Value, std::vector<Op>>) {
    // Any string is valid: the parser skips unknown names with a warning. The enum is for completion.
    return list_of(any_of(one_of(kOpNames), text()));
  } else if constexpr (std::is_same_v<Value, std::vector<Config::Format>>) {
    Json list = list_of(one_of(kFormatNames));
    list["minItems"] = 1;
    return any_of(one_of(kFormatNames), std::move(list));
  } else if constexpr (std::is_same_v<Value, CausalMask>) {
    return {{"enum", {"auto", true, false}}};
  } else if constexpr (std::is_enum_v<Value>) {
    return one_of(names_of<Value>());
  } else if constexpr (std::is_same_v<Value, std::vector<Config::Target>>) {
    return {{"type", "object"},
            {"maxProperties", kMaxTargets},
            {"additionalProperties", schema_of_object(options<Config::Target>())}};
  } else if constexpr (std::is_same_v<Value, Config::Selection>) {
    return any_of({{"const", "tensor"}},
                  {{"type", "string"}, {"pattern", R"(^tuple\[[0-9]{1,9}\](:[0-9]{1,9})?$)"}});
  } else if constexpr (std::is_same_v<Value, std::vector<AlertRule>>) {
    return schema_of_rules();
  } else if constexpr (std::is_same_v<Value, std::vector<Config::Scalar>>) {
    const Json way = one_of(std::array<std::string_view, 2>{"log", "records"});
    return {{"type", "object"}, {"additionalProperties", any_of(way, list_of(way))}};
  } else if constexpr (std::is_same_v<Value, std::shared_ptr<const Config>>) {
    return {{"allOf", Json::array({{{"$ref", "#"}}, {{"properties", {{"on_alert", false}}}}})}};
  } else if constexpr (kIsOptional<Value>) {
    return schema<typename Value::value_type>(bounds);
  } else {
    return schema_of_object(options<Value>());
  }
}

template <typename Part>
Json schema_of_option(const Option<Part>& option) {
  Json json{
      {"description", std::string(option.meaning) + " (" + std::string(option.expected) + ")" +
                          (option.reload == Reload::restart ? "; takes effect at the next start" : "")}};
  // "none", "all" and "measured" are not JSON values.
  if (Json fallback = Json::parse(option.default_text, nullptr, false); !fallback.is_discarded())
    json["default"] = std::move(fallback);
  json.update(std::visit(
      [&option](auto field) {
        using Value = std::remove_reference_t<decltype(std::declval<Part&>().*field)>;
        return schema<Value>(option.constraint());
      },
      option.field));
  return json;
}

template <typename Part>
Json schema_of_object(const std::vector<Option<Part>>& options_of_part) {
  Json properties = Json::object();
  for (const Option<Part>& option : options_of_part)
    properties[std::string(option.name)] = schema_of_option(option);
  return {{"type", "object"}, {"properties", std::move(properties)}};
}

}  // namespace

std::string config_json_schema() {
  Json json{{"$schema", "http://json-schema.org/draft-07/schema#"}, {"title", "gradmon config"}};
  json.update(schema_of_object(options<Config>()));
  return json.dump(2) + '\n';
}

}  // namespace gradmon

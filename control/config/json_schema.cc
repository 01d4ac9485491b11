// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "control/config/config_schema.h"

namespace gradmon {
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

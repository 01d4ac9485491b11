// SPDX-License-Identifier: Apache-2.0
#include "control/config/json_schema.h"

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
Json schema_of_part();

template <typename Names>
Json one_of(const Names& names) {
  return {{"enum", names}};
}

Json list_of(Json item) { return {{"type", "array"}, {"items", std::move(item)}}; }
Json text() { return {{"type", "string"}}; }
Json any_of(Json first, Json second) {
  return {{"anyOf", Json::array({std::move(first), std::move(second)})}};
}

// Tag that selects the overload of schema() by the type of a field.
template <typename Value>
struct FieldTag {
  Value* value = nullptr;
};

Json schema(FieldTag<bool>, const Constraint&) { return {{"type", "boolean"}}; }

Json schema(FieldTag<std::int64_t>, const Constraint& bounds) {
  return {{"type", "integer"}, {"minimum", bounds.low}, {"maximum", bounds.high}};
}

Json schema(FieldTag<double>, const Constraint& bounds) {
  const bool inclusive_low = bounds.rule == Rule::inclusive_low;
  Json number{{"type", "number"}, {inclusive_low ? "minimum" : "exclusiveMinimum", bounds.low}};
  if (bounds.high != kUnbounded) number["maximum"] = static_cast<double>(bounds.high);
  return number;
}

Json schema(FieldTag<std::chrono::milliseconds>, const Constraint& bounds) {
  return schema(FieldTag<double>{}, bounds);
}

Json schema(FieldTag<std::string>, const Constraint&) { return text(); }

Json schema(FieldTag<std::vector<std::string>>, const Constraint& bounds) {
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

Json schema(FieldTag<std::vector<std::int64_t>>, const Constraint& bounds) {
  return list_of(schema(FieldTag<std::int64_t>{}, bounds));
}

// Any string is valid: the parser skips unknown names with a warning. The enum is for completion.
Json schema(FieldTag<std::vector<Op>>, const Constraint&) {
  return list_of(any_of(one_of(kOpNames), text()));
}

Json schema(FieldTag<std::vector<Config::Format>>, const Constraint&) {
  Json list = list_of(one_of(kFormatNames));
  list["minItems"] = 1;
  return any_of(one_of(kFormatNames), std::move(list));
}

template <typename Enum, typename = std::enable_if_t<std::is_enum_v<Enum>>>
Json schema(FieldTag<Enum>, const Constraint&) {
  return one_of(names_of<Enum>());
}
Json schema(FieldTag<CausalMask>, const Constraint&) { return {{"enum", {"auto", true, false}}}; }

Json schema(FieldTag<std::vector<Config::Target>>, const Constraint&) {
  return {{"type", "object"},
          {"maxProperties", kMaxTargets},
          {"additionalProperties", schema_of_part<Config::Target>()}};
}

Json schema(FieldTag<Config::Selection>, const Constraint&) {
  return any_of({{"const", "tensor"}},
                {{"type", "string"}, {"pattern", R"(^tuple\[[0-9]{1,9}\](:[0-9]{1,9})?$)"}});
}

Json schema(FieldTag<Config::CcDistribution>, const Constraint&) {
  return schema_of_part<Config::CcDistribution>();
}
Json schema(FieldTag<Config::L2Targets>, const Constraint&) { return schema_of_part<Config::L2Targets>(); }
Json schema(FieldTag<Config::Alert>, const Constraint&) { return schema_of_part<Config::Alert>(); }
Json schema(FieldTag<Config::OnAlert>, const Constraint&) { return schema_of_part<Config::OnAlert>(); }

Json schema_of_args(const AlertRuleSchema& rule);

Json schema(FieldTag<std::vector<AlertRule>>, const Constraint&) {
  Json by_name = Json::array();
  for (const AlertRuleSchema& rule : alert_rule_schemas()) {
    Json then{{"properties", {{"args", schema_of_args(rule)}}}};
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

Json schema(FieldTag<std::vector<Config::Scalar>>, const Constraint&) {
  const Json way = one_of(std::array<std::string_view, 2>{"log", "records"});
  return {{"type", "object"}, {"additionalProperties", any_of(way, list_of(way))}};
}

Json schema(FieldTag<std::shared_ptr<const Config>>, const Constraint&) {
  return {{"allOf", Json::array({{{"$ref", "#"}}, {{"properties", {{"on_alert", false}}}}})}};
}

template <typename Value>
Json schema(FieldTag<std::optional<Value>>, const Constraint& bounds) {
  return schema(FieldTag<Value>{}, bounds);
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
        return schema(FieldTag<Value>{}, option.constraint());
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

template <typename Part>
Json schema_of_part() {
  return schema_of_object(options<Part>());
}

Json schema_of_args(const AlertRuleSchema& rule) {
  Json args = schema_of_object(rule.args);
  if (!rule.required.empty()) args["required"] = Json::array({rule.required});
  return args;
}

}  // namespace

std::string config_json_schema() {
  Json json{{"$schema", "http://json-schema.org/draft-07/schema#"}, {"title", "gradmon config"}};
  json.update(schema_of_part<Config>());
  return json.dump(2) + '\n';
}

}  // namespace gradmon

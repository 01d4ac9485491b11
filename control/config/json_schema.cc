// SPDX-License-Identifier: Apache-2.0
#include "control/config/json_schema.h"

#include <nlohmann/json.hpp>

#include "control/config/config_schema.h"

namespace gradmon {
namespace {

using Json = nlohmann::ordered_json;

// The constraints of an Option, whatever its Part.
struct Bounds {
  Rule rule;
  std::int64_t low;
  std::int64_t high;
};

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
struct Of {
  Value* value = nullptr;
};

Json schema(Of<bool>, const Bounds&) { return {{"type", "boolean"}}; }

Json schema(Of<std::int64_t>, const Bounds& bounds) {
  return {{"type", "integer"}, {"minimum", bounds.low}, {"maximum", bounds.high}};
}

Json schema(Of<double>, const Bounds& bounds) {
  const bool from_low = bounds.rule == Rule::from_low;
  return {{"type", "number"},
          {from_low ? "minimum" : "exclusiveMinimum", bounds.low},
          {"maximum", static_cast<double>(bounds.high)}};
}

Json schema(Of<std::chrono::milliseconds>, const Bounds& bounds) { return schema(Of<double>{}, bounds); }

Json schema(Of<std::string>, const Bounds&) { return text(); }

Json schema(Of<std::vector<std::string>>, const Bounds& bounds) {
  Json list = list_of(text());
  if (bounds.rule == Rule::patterns) {
    list["items"]["maxLength"] = kMaxPatternBytes;
    list["maxItems"] = kMaxPatterns;
  } else if (bounds.rule == Rule::none_or_two) {
    list["anyOf"] = Json::array({{{"maxItems", 0}}, {{"minItems", 2}, {"maxItems", 2}}});
  }
  return list;
}

Json schema(Of<std::vector<std::int64_t>>, const Bounds& bounds) {
  return list_of(schema(Of<std::int64_t>{}, bounds));
}

// Any string is valid: the parser skips unknown names with a warning. The enum is for completion.
Json schema(Of<std::vector<Op>>, const Bounds&) { return list_of(any_of(one_of(kOpNames), text())); }

Json schema(Of<std::vector<Config::Format>>, const Bounds&) {
  Json list = list_of(one_of(kFormatNames));
  list["minItems"] = 1;
  return any_of(one_of(kFormatNames), std::move(list));
}

Json schema(Of<AxisOrder>, const Bounds&) { return one_of(kAxisOrderNames); }
Json schema(Of<Config::OnPartition>, const Bounds&) { return one_of(kOnPartitionNames); }
Json schema(Of<Config::OnOverflow>, const Bounds&) { return one_of(kOnOverflowNames); }
Json schema(Of<CausalMask>, const Bounds&) { return {{"enum", {"auto", true, false}}}; }

Json schema(Of<std::vector<Config::Target>>, const Bounds&) {
  return {{"type", "object"},
          {"maxProperties", kMaxTargets},
          {"additionalProperties", schema_of_part<Config::Target>()}};
}

Json schema(Of<Config::Selection>, const Bounds&) {
  return any_of({{"const", "tensor"}},
                {{"type", "string"}, {"pattern", R"(^tuple\[[0-9]{1,9}\](:[0-9]{1,9})?$)"}});
}

Json schema(Of<Config::CcDistribution>, const Bounds&) { return schema_of_part<Config::CcDistribution>(); }
Json schema(Of<Config::L2Targets>, const Bounds&) { return schema_of_part<Config::L2Targets>(); }
Json schema(Of<Config::Alert>, const Bounds&) { return schema_of_part<Config::Alert>(); }
Json schema(Of<Config::OnAlert>, const Bounds&) { return schema_of_part<Config::OnAlert>(); }

Json schema(Of<std::vector<Config::AlertRule>>, const Bounds&) {
  const Json threshold = schema(Of<double>{}, {Rule::from_low, 0, std::numeric_limits<std::int64_t>::max()});
  return list_of({{"type", "object"},
                  {"properties",
                   {{"rule_name", one_of(kAlertRuleNames)},
                    {"args", {{"type", "object"}, {"properties", {{"threshold", threshold}}}}}}},
                  {"required", Json::array({"rule_name"})},
                  {"if", {{"properties", {{"rule_name", {{"const", "AnomalyTurbulence"}}}}}}},
                  {"then",
                   {{"properties", {{"args", {{"required", Json::array({"threshold"})}}}}},
                    {"required", Json::array({"args"})}}}});
}

Json schema(Of<std::vector<Config::Scalar>>, const Bounds&) {
  const Json way = one_of(std::array<std::string_view, 2>{"log", "records"});
  return {{"type", "object"}, {"additionalProperties", any_of(way, list_of(way))}};
}

Json schema(Of<std::shared_ptr<const Config>>, const Bounds&) {
  return {{"allOf", Json::array({{{"$ref", "#"}}, {{"properties", {{"on_alert", false}}}}})}};
}

template <typename Value>
Json schema(Of<std::optional<Value>>, const Bounds& bounds) {
  return schema(Of<Value>{}, bounds);
}

template <typename Part>
Json schema_of_option(const Option<Part>& option) {
  const Bounds bounds{option.rule, option.low, option.high};
  Json json{
      {"description", std::string(option.meaning) + " (" + std::string(option.expected) + ")" +
                          (option.change == Change::fixed ? "; takes effect at the next start" : "") +
                          (option.feature == Feature::missing ? "; not available in this version" : "")}};
  // "none", "all" and "measured" are not JSON values.
  if (Json fallback = Json::parse(option.fallback, nullptr, false); !fallback.is_discarded())
    json["default"] = std::move(fallback);
  json.update(std::visit(
      [&bounds](auto field) {
        using Value = std::remove_reference_t<decltype(std::declval<Part&>().*field)>;
        return schema(Of<Value>{}, bounds);
      },
      option.field));
  return json;
}

template <typename Part>
Json schema_of_part() {
  Json properties = Json::object();
  for (const Option<Part>& option : options<Part>())
    properties[std::string(option.name)] = schema_of_option(option);
  return {{"type", "object"}, {"properties", std::move(properties)}};
}

}  // namespace

std::string config_json_schema() {
  Json json{{"$schema", "http://json-schema.org/draft-07/schema#"}, {"title", "gradmon config"}};
  json.update(schema_of_part<Config>());
  return json.dump(2) + '\n';
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/config/config_value.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "control/config/config_schema.h"
#include "control/config/json_edit.h"
#include "control/config/json_locate.h"
#include "control/config/json_schema.h"

namespace gradmon {
namespace {

using Json = nlohmann::ordered_json;

// The nearest key to `name` in the object at `pointer`, among the keys of the schema and of the text. "" if
// all are too far.
std::string near_key(std::string_view text, const std::string& pointer, const Json& schema,
                     const std::string& name) {
  std::vector<std::string> names;
  if (schema.contains("properties")) {
    for (const auto& property : schema["properties"].items()) names.push_back(property.key());
  }
  const Json there = Json::parse(value_at(text, pointer).value_or("null"), nullptr, false);
  if (there.is_object()) {
    for (const auto& member : there.items()) names.push_back(member.key());
  }
  return std::string(nearest(name, {names.begin(), names.end()}));
}

}  // namespace

tl::expected<std::string, std::string> config_value(std::string_view text, const std::string& key) {
  const std::string pointer = to_pointer(key);
  if (const auto value = value_at(text, pointer)) return std::string(*value);
  const auto parts = split_pointer(pointer);
  if (!parts || parts->empty()) return tl::make_unexpected("\"" + key + "\" is not a key or JSON pointer");
  Json schema = Json::parse(config_json_schema());
  std::string above;
  for (const std::string& part : *parts) {
    const Json properties = schema.value("properties", Json::object());
    if (!properties.contains(part)) {
      const std::string near = near_key(text, above, schema, part);
      return tl::make_unexpected("unknown key \"" + part + "\"" + (above.empty() ? "" : " in " + above) +
                                 (near.empty() ? "" : " (did you mean \"" + near + "\"?)"));
    }
    schema = properties[part];
    above += to_pointer(part);
  }
  return schema.value("default", Json(nullptr)).dump();
}

}  // namespace gradmon

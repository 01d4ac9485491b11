// SPDX-License-Identifier: Apache-2.0
// The rules for all JSON that gradmonctl prints. Times are milliseconds since 1970. null
// stands for an absent value: a step of -1, an empty text, a time or pid of 0. Bytes that
// are not UTF-8 become U+FFFD. `schema_version` rises when a field changes or is removed;
// fields may be added at any time.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace gradmon {

using OrderedJson = nlohmann::ordered_json;

inline constexpr int kJsonSchemaVersion = 2;

enum class JsonLayout { indented, one_line };

inline OrderedJson step_or_null(std::int64_t step) {
  return step < 0 ? OrderedJson(nullptr) : OrderedJson(step);
}
inline OrderedJson time_or_null(std::int64_t time) {
  return time == 0 ? OrderedJson(nullptr) : OrderedJson(time);
}
inline OrderedJson text_or_null(const std::string& text) {
  return text.empty() ? OrderedJson(nullptr) : OrderedJson(text);
}

// With a line feed at the end.
inline std::string json_text(const OrderedJson& json, JsonLayout layout) {
  const int indentation = layout == JsonLayout::indented ? 2 : -1;
  return json.dump(indentation, ' ', false, OrderedJson::error_handler_t::replace) + '\n';
}

}  // namespace gradmon

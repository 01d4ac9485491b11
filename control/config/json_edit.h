// SPDX-License-Identifier: Apache-2.0
// Changes single values of a JSON text and no other byte. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "control/config/json_text.h"

namespace gradmon {

// Returns `json` with the value at `json_pointer` replaced by the JSON `value_json`. A missing key
// becomes the first member of its object, with the indentation and line ending of the former first
// member; missing parents are added as objects. The error, for people: `json` or `value_json` is not
// JSON, a key is duplicate, the pointer is invalid or leads through a scalar or a missing array element,
// or the result would exceed the bounds of json_text.h.
[[nodiscard]] tl::expected<JsonText, std::string> set_value(const JsonText& json,
                                                            std::string_view json_pointer,
                                                            std::string_view value_json);

// Calls set_value() for each pair in turn: a key or a JSON pointer, and a value as JSON. The error names
// the first key that cannot be set, and the reason.
using JsonEdits = std::vector<std::pair<std::string, std::string>>;
[[nodiscard]] tl::expected<JsonText, std::string> set_values(JsonText json, const JsonEdits& edits);
// The same; returns the text alone.
[[nodiscard]] tl::expected<std::string, std::string> set_values(std::string text, const JsonEdits& edits);

// The bytes of the value at `json_pointer`, a view into `text`; none if the value is missing.
std::optional<std::string_view> value_at(std::string_view text, std::string_view json_pointer);

// The JSON pointer of a user's input: "/alert/dump" stays unchanged, "eps" becomes "/eps".
std::string to_pointer(std::string_view key_or_pointer);

// The config text for a capture: in `config_text`, each member of its object at /on_alert/collect replaces
// the top-level key of the same name; all other keys stay. `config_text` must be a valid config with such an
// object. The error, for people: the result would exceed the bounds of json_text.h. Pure.
[[nodiscard]] tl::expected<std::string, std::string> capture_config(std::string_view config_text);

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// Changes one value of a JSON text and no other byte. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

namespace gradmon {

// `text` with the value at `json_pointer` replaced by the JSON `value_json`.
// A missing key becomes the first member of its object, with the indentation
// and line ending of the member that was first; missing parents become objects
// around it. The error, for people: `text` or `value_json` is no JSON, a key
// is duplicate, or the pointer leads through something that is no container.
[[nodiscard]] tl::expected<std::string, std::string> set_value(std::string_view text,
                                                               std::string_view json_pointer,
                                                               std::string_view value_json);

// Sets one value after the other: each pair is a key or a JSON pointer, and a value as JSON.
// The error names the first key that cannot be set, and says why.
[[nodiscard]] tl::expected<std::string, std::string> set_values(
    std::string text, const std::vector<std::pair<std::string, std::string>>& edits);

// The bytes of the value at `json_pointer`; none where there is none.
std::optional<std::string_view> value_at(std::string_view text, std::string_view json_pointer);

// A JSON pointer from what a user types: "/alert/dump" as it is, "eps" as "/eps".
std::string to_pointer(std::string_view key_or_pointer);

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// A JSON text, read once: the bytes of every key and value, and the first syntax error. Strict (RFC 8259),
// but for numbers of any size. Not recursive, bounded. simdjson reads a value at its place. Values; any
// thread. Edits change single values and no other byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "control/aliases.h"

namespace gradmon {

// A syntax error.
struct JsonFault {
  std::size_t offset = 0;  // bytes from the start of the text
  std::string found;       // for people
  std::string expected;    // for people; may include a hint; "" if `found` is the whole message
};

// "found X, expected Y"; "expected Y" without `found`; `found` alone without `expected`.
std::string found_and_expected(const std::string& found, const std::string& expected);

// Encodes `text` as a string literal with quotes.
std::string encode_string(std::string_view text);

// About the first 40 bytes of `text`, on one line, for a message.
std::string excerpt(std::string_view text);

inline constexpr std::size_t kMaxJsonBytes = std::size_t{1} << 20U;  // of a config file, too
inline constexpr std::size_t kMaxJsonDepth = 32;
inline constexpr std::size_t kMaxJsonValues = 65'536;

// Half-open range of bytes of the text.
struct JsonSpan {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

enum class JsonKind : std::uint8_t { object, array, string, number, boolean, null };

// The value of a string, a number, true or false; monostate for null, objects and arrays. A number that fits
// neither 64 bits nor a double is the nearest double, or an infinity.
using JsonScalar = std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string>;

inline constexpr std::uint32_t kNoJsonNode = 0xFFFFFFFF;

// One value. Nodes are in the order of the text, a parent before its children: the first child of
// node i is node i + 1.
struct JsonNode {
  JsonSpan key;    // quotes included; empty unless the parent is an object
  JsonSpan value;  // quotes and brackets included
  std::uint32_t parent = kNoJsonNode;
  std::uint32_t next = kNoJsonNode;  // next child of the same parent; kNoJsonNode: none
  std::uint32_t children = 0;
  JsonKind kind = JsonKind::null;
};

// Both count from 1. Columns count characters, without the BOM.
struct LineColumn {
  std::size_t line = 1;
  std::size_t column = 1;
};

struct JsonText {
  // A leading UTF-8 BOM is skipped, but counts in the offsets of spans.
  explicit JsonText(std::string json);

  std::string text;
  std::vector<JsonNode> nodes;     // up to the fault
  std::optional<JsonFault> fault;  // none: a whole JSON text within the bounds

  bool is_object() const { return !fault && nodes.front().kind == JsonKind::object; }
  std::vector<std::uint32_t> children(std::uint32_t node) const;
  // The bytes of a key with its quotes, and of a value.
  std::string_view key_literal(std::uint32_t node) const { return bytes_at(nodes[node].key); }
  std::string_view literal(std::uint32_t node) const { return bytes_at(nodes[node].value); }
  std::string key(std::uint32_t node) const;
  JsonScalar scalar(std::uint32_t node) const;

  // The child of an object with this key; the last of several.
  std::optional<std::uint32_t> member(std::uint32_t object, std::string_view key) const;
  // The child of an object or an array that this part of a pointer names.
  std::optional<std::uint32_t> child(std::uint32_t node, std::string_view part) const;
  // The value at an RFC 6901 pointer.
  std::optional<std::uint32_t> find(std::string_view pointer) const;
  // The RFC 6901 pointer to `node`.
  std::string pointer_to(std::uint32_t node) const;
  // Pairs of members of one object with the same key, in the order of the text within an object.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> duplicate_keys() const;
  LineColumn place_of(std::size_t offset) const;

 private:
  std::string_view bytes_at(const JsonSpan& span) const {
    return std::string_view(text).substr(span.begin, span.end - span.begin);
  }
};

// Writes a key as a part of an RFC 6901 pointer: "~" as "~0", "/" as "~1".
std::string escape_pointer_part(std::string_view key);
// The decoded parts of an RFC 6901 pointer; none if `pointer` is invalid.
std::optional<std::vector<std::string>> split_pointer(std::string_view pointer);

inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Returns `json` with the value at `json_pointer` replaced by the JSON `value_json`. A missing key
// becomes the first member of its object, with the indentation and line ending of the former first
// member; missing parents are added as objects. The error, for people: `json` or `value_json` is not
// JSON, a key is duplicate, the pointer is invalid or leads through a scalar or a missing array element,
// or the result would exceed the bounds of json_text.h.
[[nodiscard]] Result<JsonText> set_value(const JsonText& json, std::string_view json_pointer,
                                         std::string_view value_json);

// Calls set_value() for each pair in turn: a key or a JSON pointer, and a value as JSON. The error names
// the first key that cannot be set, and the reason.
using JsonEdits = std::vector<std::pair<std::string, std::string>>;
[[nodiscard]] Result<JsonText> set_values(JsonText json, const JsonEdits& edits);
// The same; returns the text alone.
[[nodiscard]] Result<std::string> set_values(std::string text, const JsonEdits& edits);

// The bytes of the value at `json_pointer`, a view into `text`; none if the value is missing.
std::optional<std::string_view> value_at(std::string_view text, std::string_view json_pointer);

// The JSON pointer of a user's input: "/alert/dump" stays unchanged, "eps" becomes "/eps".
std::string to_pointer(std::string_view key_or_pointer);

// The config text for a capture: in `config_text`, each member of its object at /on_alert/collect replaces
// the top-level key of the same name; all other keys stay. `config_text` must be a valid config with such an
// object. The error, for people: the result would exceed the bounds of json_text.h. Pure.
[[nodiscard]] Result<std::string> capture_config(std::string_view config_text);

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// Finds positions in a JSON text: the bytes of every key and value, duplicate keys, the first syntax
// error. simdjson gives the values, but not their positions. Strict (RFC 8259): accepts
// simdjson's language, and numbers of any size. Not recursive, bounded. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

namespace gradmon {

// A syntax error.
struct JsonFault {
  std::size_t offset = 0;  // bytes from the start of the text
  std::string found;       // for people
  std::string expected;    // for people; may include a hint; "" if `found` is the whole message
};

// "found X, expected Y"; "expected Y" without `found`; `found` alone without `expected`.
std::string found_and_expected(const std::string& found, const std::string& expected);

// Offset just after the string whose opening quote is at `begin`.
[[nodiscard]] tl::expected<std::size_t, JsonFault> end_of_string(std::string_view text, std::size_t begin);

// Offset just after the number that begins at `begin` (with a digit or "-").
[[nodiscard]] tl::expected<std::size_t, JsonFault> end_of_number(std::string_view text, std::size_t begin);
// The value of a number that simdjson refuses: the nearest double of an integer of more than 64 bits, an
// infinity for a number beyond all doubles. None if simdjson accepts the number.
std::optional<double> oversized_number(std::string_view number);

// Decodes a valid string literal, quotes included.
std::string decode_string(std::string_view literal);
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
  std::string_view of(std::string_view text) const { return text.substr(begin, end - begin); }
};

enum class JsonKind : std::uint8_t { object, array, string, number, boolean, null };

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

struct JsonDocument {
  std::vector<JsonNode> nodes;     // up to the fault
  std::optional<JsonFault> fault;  // none: a whole JSON text within the bounds
};

// A leading UTF-8 BOM is skipped, but counts in the offsets of spans.
JsonDocument locate_json(std::string_view text);

// Two members of one object whose decoded keys are equal.
struct JsonDuplicate {
  std::uint32_t first = 0;
  std::uint32_t second = 0;
};
std::vector<JsonDuplicate> duplicate_keys(const JsonDocument& document, std::string_view text);

// Writes a key as a part of an RFC 6901 pointer: "~" as "~0", "/" as "~1".
std::string escape_pointer_part(std::string_view key);
// The RFC 6901 pointer to `node`.
std::string json_pointer_to(const JsonDocument& document, std::string_view text, std::uint32_t node);
// The child of an object with this decoded key; the last of several.
std::optional<std::uint32_t> find_member(const JsonDocument& document, std::string_view text,
                                         std::uint32_t object, std::string_view key);
// The decoded parts of an RFC 6901 pointer; none if `pointer` is invalid.
std::optional<std::vector<std::string>> split_pointer(std::string_view pointer);

// Both count from 1. Columns count characters, without the BOM.
struct LineColumn {
  std::size_t line = 1;
  std::size_t column = 1;
};
LineColumn line_column(std::string_view text, std::size_t offset);

inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
// 3 if `text` begins with a UTF-8 BOM, else 0.
constexpr std::size_t byte_order_mark_bytes(std::string_view text) {
  return text.substr(0, kByteOrderMark.size()) == kByteOrderMark ? kByteOrderMark.size() : 0;
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// Strings and numbers of JSON as bytes: where they end, what is wrong in them,
// what they mean. Strict (RFC 8259); accepts what simdjson accepts. Pure
// functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

namespace gradmon {

// What disturbs a reader of JSON, and where.
struct JsonFault {
  std::size_t offset = 0;  // bytes from the start of the text
  std::string found;       // for people
  std::string expected;    // for people; carries the hint
};

// Offset just behind the string whose opening quote is at `begin`.
[[nodiscard]] tl::expected<std::size_t, JsonFault> end_of_string(std::string_view text, std::size_t begin);

// Offset just behind the number that begins at `begin` (with a digit or "-").
// A number beyond what 64-bit integers and doubles can hold is a fault.
[[nodiscard]] tl::expected<std::size_t, JsonFault> end_of_number(std::string_view text, std::size_t begin);

// What a valid string literal, quotes included, means.
std::string decode_string(std::string_view literal);
// The other way: a literal with its quotes.
std::string encode_string(std::string_view text);

// At most about 40 characters of `text` for a message, on one line.
std::string excerpt(std::string_view text);

}  // namespace gradmon

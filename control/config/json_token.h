// SPDX-License-Identifier: Apache-2.0
// Scans and decodes JSON strings and numbers. Strict (RFC 8259); accepts simdjson's language, and numbers of
// any size. Pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

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

}  // namespace gradmon

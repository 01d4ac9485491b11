// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

namespace gradmon {

// One character of UTF-8 (RFC 3629).
struct Utf8Character {
  std::size_t bytes = 0;  // 1 to 4; 0: the text is malformed at `at`
  char32_t code_point = 0;
};

// The character that begins at byte `at`, which must be less than text.size(). Overlong
// forms, surrogates and code points above U+10FFFF are malformed. Pure.
Utf8Character utf8_character(std::string_view text, std::size_t at);

// The longest prefix of at most so many bytes that cuts no character of well-formed text. Pure.
std::string_view utf8_prefix(std::string_view text, std::size_t most_bytes);

}  // namespace gradmon

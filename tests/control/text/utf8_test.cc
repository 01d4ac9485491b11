// SPDX-License-Identifier: Apache-2.0
#include "control/text/utf8.h"

#include <string>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

// Encodes as RFC 3629, section 3, independently of the code under test. Encodes invalid code points, too.
std::string encoded(char32_t code) {
  const auto byte = [](char32_t value) { return static_cast<char>(static_cast<unsigned char>(value)); };
  if (code < 0x80) return {byte(code)};
  if (code < 0x800) return {byte(0xC0 | code >> 6), byte(0x80 | (code & 0x3F))};
  if (code < 0x10000)
    return {byte(0xE0 | code >> 12), byte(0x80 | (code >> 6 & 0x3F)), byte(0x80 | (code & 0x3F))};
  return {byte(0xF0 | code >> 18), byte(0x80 | (code >> 12 & 0x3F)), byte(0x80 | (code >> 6 & 0x3F)),
          byte(0x80 | (code & 0x3F))};
}

TEST_CASE("every code point is decoded and surrogates and values above U+10FFFF are malformed") {
  for (char32_t code = 0; code <= 0x110010; ++code) {
    const bool valid = (code < 0xD800 || code > 0xDFFF) && code <= 0x10FFFF;
    const std::string text = "x" + encoded(code) + "y";
    const Utf8Character found = utf8_character(text, 1);
    if (found.bytes != (valid ? text.size() - 2 : 0)) FAIL_CHECK(static_cast<std::uint32_t>(code));
    if (valid && found.code_point != code) FAIL_CHECK(static_cast<std::uint32_t>(code));
  }
}

TEST_CASE("overlong, cut off and stray bytes are malformed") {
  for (const std::string text : {"\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF", "\xE2\x82",
                                 "\xC3", "\x80", "\xFF", "\xC3(", "\xE2\x82("}) {
    CHECK(utf8_character(text, 0).bytes == 0);
  }
}

TEST_CASE("a prefix cuts no character") {
  CHECK(utf8_prefix("abc", 3) == "abc");
  CHECK(utf8_prefix("abcd", 3) == "abc");
  CHECK(utf8_prefix("a\xC3\xA4", 2) == "a");
  CHECK(utf8_prefix("a\xC3\xA4", 3) == "a\xC3\xA4");
  const std::string four = encoded(0x1F600);
  for (std::size_t most = 1; most <= 4; ++most) CHECK(utf8_prefix("x" + four, most) == "x");
  CHECK(utf8_prefix("x" + four + "y", 5) == "x" + four);
  CHECK(utf8_prefix("\x80\x80\x80\x80\x80\x80", 5).size() == 5);
  CHECK(utf8_prefix(four, 0).empty());
  CHECK(utf8_prefix(four, 2).empty());
}

}  // namespace
}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "control/config/json_token.h"

#include <charconv>
#include <cstdint>
#include <limits>

#include "control/text/utf8.h"

namespace gradmon {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
unsigned char byte_at(std::string_view text, std::size_t at) {
  return at < text.size() ? static_cast<unsigned char>(text[at]) : 0;
}

std::string hex_byte(unsigned char byte) {
  constexpr char digits[] = "0123456789abcdef";
  return {'0', 'x', digits[byte >> 4U], digits[byte & 15U]};
}

std::optional<std::uint32_t> hex4(std::string_view text, std::size_t at) {
  if (at + 4 > text.size()) return std::nullopt;
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + at + 4, value, 16);
  if (error != std::errc{} || end != text.data() + at + 4) return std::nullopt;
  return value;
}

void append_utf8(std::string& out, std::uint32_t code) {
  const auto put = [&out](std::uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0U | code >> 6U);
    put(0x80U | (code & 0x3FU));
  } else if (code < 0x10000) {
    put(0xE0U | code >> 12U);
    put(0x80U | (code >> 6U & 0x3FU));
    put(0x80U | (code & 0x3FU));
  } else {
    put(0xF0U | code >> 18U);
    put(0x80U | (code >> 12U & 0x3FU));
    put(0x80U | (code >> 6U & 0x3FU));
    put(0x80U | (code & 0x3FU));
  }
}

bool is_high_surrogate(std::uint32_t code) { return code >= 0xD800 && code < 0xDC00; }
bool is_low_surrogate(std::uint32_t code) { return code >= 0xDC00 && code < 0xE000; }

// `at` is the backslash.
tl::expected<std::size_t, JsonFault> end_of_escape(std::string_view text, std::size_t at) {
  const char kind = at + 1 < text.size() ? text[at + 1] : '\0';
  if (kind != 'u') {
    if (kind != '\0' && std::string_view("\"\\/bfnrt").find(kind) != std::string_view::npos) return at + 2;
    return tl::unexpected(JsonFault{at, "the escape " + excerpt(text.substr(at, 2)),
                                    R"(one of \" \\ \/ \b \f \n \r \t \uXXXX (a backslash is written \\))"});
  }
  const auto code = hex4(text, at + 2);
  if (!code) return tl::unexpected(JsonFault{at, excerpt(text.substr(at, 6)), "four hex digits after \\u"});
  if (is_high_surrogate(*code) && text.substr(at + 6, 2) == "\\u") {
    const auto low = hex4(text, at + 8);
    if (low && is_low_surrogate(*low)) return at + 12;
  }
  if (is_high_surrogate(*code) || is_low_surrogate(*code)) {
    return tl::unexpected(JsonFault{at, "the lone surrogate " + excerpt(text.substr(at, 6)),
                                    "a pair of surrogates, or the character itself"});
  }
  return at + 6;
}

// True if a nonzero decimal number that does not fit in a double is too large; false if it is too small.
// Decided by the place of its first nonzero digit.
bool is_large(std::string_view number) {
  const auto exponent_at = number.find_first_of("eE");
  const auto mantissa = number.substr(0, exponent_at);
  const auto point = std::min(mantissa.find('.'), mantissa.size());
  const auto first = std::min(mantissa.find_first_of("123456789"), mantissa.size());
  const auto place = static_cast<std::int64_t>(point) - static_cast<std::int64_t>(first);
  std::int64_t exponent = 0;
  if (exponent_at != std::string_view::npos) {
    auto digits = number.substr(exponent_at + 1);
    if (digits.front() == '+') digits.remove_prefix(1);
    const auto error = std::from_chars(digits.data(), digits.data() + digits.size(), exponent).ec;
    if (error != std::errc{}) return digits.front() != '-';
  }
  return place + exponent > 0;
}

}  // namespace

std::optional<double> oversized_number(std::string_view number) {
  const char* const begin = number.data();
  const char* const end = begin + number.size();
  const bool integer = number.find_first_of(".eE") == std::string_view::npos;
  std::int64_t negative = 0;
  std::uint64_t positive = 0;
  if (integer && (number.front() == '-' ? std::from_chars(begin, end, negative).ec
                                        : std::from_chars(begin, end, positive).ec) == std::errc{})
    return std::nullopt;
  double value = 0;
  if (std::from_chars(begin, end, value).ec != std::errc{}) {
    if (!is_large(number)) return std::nullopt;
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return number.front() == '-' ? -kInfinity : kInfinity;
  }
  if (!integer) return std::nullopt;
  return value;
}

std::string found_and_expected(const std::string& found, const std::string& expected) {
  if (expected.empty()) return found;
  return (found.empty() ? "" : "found " + found + ", ") + "expected " + expected;
}

tl::expected<std::size_t, JsonFault> end_of_string(std::string_view text, std::size_t begin) {
  std::size_t at = begin + 1;
  while (at < text.size()) {
    const auto byte = byte_at(text, at);
    if (byte == '"') return at + 1;
    if (byte == '\\') {
      const auto end = end_of_escape(text, at);
      if (!end) return end;
      at = *end;
    } else if (byte < 0x20) {
      const bool newline = byte == '\n' || byte == '\r';
      return tl::unexpected(JsonFault{at,
                                      newline ? "the end of the line" : "control character " + hex_byte(byte),
                                      newline ? "a closing quote" : "an escape such as \\u0001"});
    } else {
      const auto length = utf8_character(text, at).bytes;
      if (length == 0) {
        return tl::unexpected(
            JsonFault{at, "byte " + hex_byte(byte) + " at byte offset " + std::to_string(at), "valid UTF-8"});
      }
      at += length;
    }
  }
  return tl::unexpected(JsonFault{text.size(), "the end of the file", "a closing quote"});
}

tl::expected<std::size_t, JsonFault> end_of_number(std::string_view text, std::size_t begin) {
  std::size_t at = begin;
  const auto peek = [&] { return static_cast<char>(byte_at(text, at)); };
  const auto skip_digits = [&] {
    const auto from = at;
    while (is_digit(peek())) ++at;
    return at > from;
  };
  const auto fault = [&](std::string expected) {
    const auto end = std::min(text.find_first_of(" \t\r\n,]}", begin), text.size());
    return tl::unexpected(JsonFault{begin, excerpt(text.substr(begin, end - begin)), std::move(expected)});
  };
  if (peek() == '-') ++at;
  const auto first = at;
  if (!skip_digits()) return fault("a number (JSON has no NaN and no Infinity)");
  if (text[first] == '0' && at > first + 1) return fault("a number without leading zeros");
  if (peek() == '.') {
    ++at;
    if (!skip_digits()) return fault("a digit after the decimal point");
  }
  if (peek() == 'e' || peek() == 'E') {
    ++at;
    if (peek() == '+' || peek() == '-') ++at;
    if (!skip_digits()) return fault("a digit in the exponent");
  }
  if (at < text.size() && std::string_view(" \t\r\n,]}:").find(text[at]) == std::string_view::npos) {
    return fault("a decimal number");
  }
  return at;
}

std::string decode_string(std::string_view literal) {
  std::string out;
  const auto body = literal.substr(1, literal.size() - 2);
  for (std::size_t at = 0; at < body.size();) {
    if (body[at] != '\\') {
      out += body[at++];
      continue;
    }
    const char kind = body[at + 1];
    if (kind != 'u') {
      constexpr std::string_view names = "bfnrt";
      constexpr std::string_view values = "\b\f\n\r\t";
      const auto i = names.find(kind);
      out += i == std::string_view::npos ? kind : values[i];
      at += 2;
      continue;
    }
    auto code = hex4(body, at + 2).value_or(0);
    at += 6;
    if (is_high_surrogate(code)) {
      code = 0x10000 + ((code - 0xD800) << 10U) + (hex4(body, at + 2).value_or(0xDC00) - 0xDC00);
      at += 6;
    }
    append_utf8(out, code);
  }
  return out;
}

std::string encode_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += "\\u00" + hex_byte(byte).substr(2);
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string excerpt(std::string_view text) {
  constexpr std::size_t kLength = 40;
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    if (at >= kLength) return out + "...";
    const auto byte = byte_at(text, at);
    const auto length = utf8_character(text, at).bytes;
    if (length == 0 || byte < 0x20 || byte == 0x7F) {
      out += byte == '\n' || byte == '\r' || byte == '\t' ? " " : "\\x" + hex_byte(byte).substr(2);
      ++at;
    } else {
      out += text.substr(at, length);
      at += length;
    }
  }
  return out;
}

}  // namespace gradmon

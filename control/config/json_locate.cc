// SPDX-License-Identifier: Apache-2.0
#include "control/config/json_locate.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>

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

namespace {

enum class Next : std::uint8_t { value, first_value, key, first_key, colon, comma, nothing };

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c >= '0' && c <= '9');
}

class Locator {
 public:
  explicit Locator(std::string_view text) : text_(text) {}

  JsonDocument run() {
    if (text_.size() > kMaxJsonBytes) {
      fail(0, std::to_string(text_.size()) + " bytes", "at most 1 MiB");
    } else if (text_.substr(0, 2) == "\xFF\xFE" || text_.substr(0, 2) == "\xFE\xFF" ||
               text_.substr(0, 4).find('\0') != std::string_view::npos) {
      fail(0, "NUL bytes or UTF-16", "UTF-8");
    } else {
      at_ = byte_order_mark_bytes(text_);
      while (!document_.fault && advance()) {
      }
    }
    return std::move(document_);
  }

 private:
  // Reads one token. Returns false at the end of the text or at a fault.
  bool advance() {
    at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size());
    if (at_ == text_.size()) {
      if (next_ != Next::nothing)
        fail(at_, nodes().empty() ? "an empty file" : "the end of the file", wanted());
      return false;
    }
    const char c = text_[at_];
    switch (next_) {
      case Next::first_key:
      case Next::key:
        if (c == '"') return read_key();
        if (c == '}' && next_ == Next::first_key) return close();
        break;
      case Next::colon:
        if (c == ':') return step(Next::value);
        break;
      case Next::first_value:
        if (c == ']') return close();
        return read_value(c);
      case Next::value:
        return read_value(c);
      case Next::comma:
        if (c == ',') {
          comma_ = at_;
          return step(parent_kind() == JsonKind::object ? Next::key : Next::value);
        }
        if (c == (parent_kind() == JsonKind::object ? '}' : ']')) return close();
        break;
      case Next::nothing:
        break;
    }
    return fail_here();
  }

  bool read_key() {
    const auto end = end_of_string(text_, at_);
    if (!end) return fail(end.error());
    key_ = span(at_, *end);
    at_ = *end;
    next_ = Next::colon;
    return true;
  }

  bool read_value(char c) {
    if (c == '{' || c == '[') return open(c == '{' ? JsonKind::object : JsonKind::array);
    if (c == '"') return scalar(JsonKind::string, end_of_string(text_, at_));
    if (c == '-' || (c >= '0' && c <= '9')) return scalar(JsonKind::number, end_of_number(text_, at_));
    constexpr std::array<std::pair<std::string_view, JsonKind>, 3> words{
        {{"true", JsonKind::boolean}, {"false", JsonKind::boolean}, {"null", JsonKind::null}}};
    for (const auto& [word, kind] : words) {
      if (word_here() == word) return scalar(kind, at_ + word.size());
    }
    return fail_here();
  }

  bool scalar(JsonKind kind, tl::expected<std::size_t, JsonFault> end) {
    if (!end) return fail(end.error());
    if (!add(kind, *end)) return false;
    at_ = *end;
    next_ = open_.empty() ? Next::nothing : Next::comma;
    return true;
  }

  bool open(JsonKind kind) {
    if (open_.size() == kMaxJsonDepth) {
      return fail(at_, "nesting deeper than " + std::to_string(kMaxJsonDepth) + " levels", "");
    }
    if (!add(kind, at_ + 1)) return false;
    open_.push_back(static_cast<std::uint32_t>(nodes().size() - 1));
    last_child_.push_back(kNoJsonNode);
    return step(kind == JsonKind::object ? Next::first_key : Next::first_value);
  }

  bool close() {
    ++at_;
    nodes()[open_.back()].value.end = static_cast<std::uint32_t>(at_);
    open_.pop_back();
    last_child_.pop_back();
    next_ = open_.empty() ? Next::nothing : Next::comma;
    return true;
  }

  bool add(JsonKind kind, std::size_t end) {
    const auto index = static_cast<std::uint32_t>(nodes().size());
    if (index == kMaxJsonValues) {
      return fail(at_, "more than " + std::to_string(kMaxJsonValues) + " values", "");
    }
    JsonNode node;
    node.key = std::exchange(key_, JsonSpan{});
    node.value = span(at_, end);
    node.kind = kind;
    if (!open_.empty()) {
      node.parent = open_.back();
      ++nodes()[node.parent].children;
      if (last_child_.back() != kNoJsonNode) nodes()[last_child_.back()].next = index;
      last_child_.back() = index;
    }
    nodes().push_back(node);
    return true;
  }

  bool fail_here() {
    const char c = text_[at_];
    const auto rest = text_.substr(at_, 2);
    const auto word = word_here();
    const bool after_comma = next_ == Next::key || (next_ == Next::value && parent_kind() == JsonKind::array);
    if (after_comma && (c == '}' || c == ']')) {
      return fail(comma_, "a comma before \"" + std::string(1, c) + "\"", "no trailing comma");
    }
    if (c == '#' || rest == "//" || rest == "/*")
      return fail(at_, "a comment (JSON has no comments)", wanted());
    if (c == '\'') return fail(at_, "a single quote", wanted() + " (strings have double quotes)");
    if (next_ == Next::nothing)
      return fail(at_, token_here(), "the end of the file (one JSON object, no more)");
    if (word == "True" || word == "False" || word == "None") {
      return fail(at_, std::string(word), wanted() + " (JSON writes true, false, null)");
    }
    if (word == "NaN" || word == "nan" || word == "Infinity" || word == "inf") {
      return fail(at_, std::string(word), wanted() + " (JSON has no NaN and no Infinity)");
    }
    if (utf8_character(text_, at_).bytes == 0) {
      return fail(at_, "byte offset " + std::to_string(at_) + ": " + excerpt(text_.substr(at_, 1)),
                  "valid UTF-8");
    }
    return fail(at_, token_here(), wanted());
  }

  std::string wanted() const {
    const bool in_object = parent_kind() == JsonKind::object;
    switch (next_) {
      case Next::value:
        return "a value";
      case Next::first_value:
        return "a value or \"]\"";
      case Next::key:
        return "a key in double quotes";
      case Next::first_key:
        return "a key in double quotes or \"}\"";
      case Next::colon:
        return "\":\"";
      case Next::comma:
        return in_object ? "\",\" or \"}\"" : "\",\" or \"]\"";
      case Next::nothing:
        break;
    }
    return "the end of the file";
  }

  std::string token_here() const {
    if (text_[at_] == '"') return "a string";
    const auto word = word_here();
    return '"' +
           excerpt(word.empty()
                       ? text_.substr(at_, std::max<std::size_t>(1, utf8_character(text_, at_).bytes))
                       : word) +
           '"';
  }
  std::string_view word_here() const {
    auto end = at_;
    while (end < text_.size() && is_word(text_[end])) ++end;
    return text_.substr(at_, end - at_);
  }

  bool fail(JsonFault fault) {
    document_.fault = std::move(fault);
    return false;
  }
  bool fail(std::size_t offset, std::string found, std::string expected) {
    return fail(JsonFault{offset, std::move(found), std::move(expected)});
  }
  bool step(Next next) {
    ++at_;
    next_ = next;
    return true;
  }
  JsonKind parent_kind() const { return open_.empty() ? JsonKind::null : document_.nodes[open_.back()].kind; }
  std::vector<JsonNode>& nodes() { return document_.nodes; }
  static JsonSpan span(std::size_t begin, std::size_t end) {
    return {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)};
  }

  const std::string_view text_;
  std::size_t at_ = 0;
  std::size_t comma_ = 0;  // offset of the last comma
  Next next_ = Next::value;
  JsonSpan key_;
  std::vector<std::uint32_t> open_;        // the containers that enclose at_
  std::vector<std::uint32_t> last_child_;  // of each container in open_
  JsonDocument document_;
};

std::string key_text(const JsonNode& node, std::string_view text) { return decode_string(node.key.of(text)); }

}  // namespace

JsonDocument locate_json(std::string_view text) { return Locator(text).run(); }

std::vector<JsonDuplicate> duplicate_keys(const JsonDocument& document, std::string_view text) {
  std::vector<JsonDuplicate> duplicates;
  const auto& nodes = document.nodes;
  for (std::uint32_t object = 0; object < nodes.size(); ++object) {
    if (nodes[object].kind != JsonKind::object || nodes[object].children < 2) continue;
    std::vector<std::pair<std::string, std::uint32_t>> keys;
    for (auto i = object + 1; i != kNoJsonNode; i = nodes[i].next)
      keys.emplace_back(key_text(nodes[i], text), i);
    std::sort(keys.begin(), keys.end());
    for (std::size_t i = 1; i < keys.size(); ++i) {
      if (keys[i - 1].first == keys[i].first) duplicates.push_back({keys[i - 1].second, keys[i].second});
    }
  }
  return duplicates;
}

std::string escape_pointer_part(std::string_view key) {
  std::string part;
  for (const char c : key) part += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return part;
}

std::string json_pointer_to(const JsonDocument& document, std::string_view text, std::uint32_t node) {
  const auto& nodes = document.nodes;
  std::string pointer;
  for (; nodes[node].parent != kNoJsonNode; node = nodes[node].parent) {
    std::string part = "/";
    if (nodes[nodes[node].parent].kind == JsonKind::object) {
      part += escape_pointer_part(key_text(nodes[node], text));
    } else {
      std::size_t index = 0;
      for (auto i = nodes[node].parent + 1; i != node; i = nodes[i].next) ++index;
      part += std::to_string(index);
    }
    pointer.insert(0, part);
  }
  return pointer;
}

std::optional<std::uint32_t> find_member(const JsonDocument& document, std::string_view text,
                                         std::uint32_t object, std::string_view key) {
  const auto& nodes = document.nodes;
  std::optional<std::uint32_t> found;
  if (nodes[object].kind != JsonKind::object || nodes[object].children == 0) return found;
  for (auto i = object + 1; i != kNoJsonNode; i = nodes[i].next) {
    if (key_text(nodes[i], text) == key) found = i;
  }
  return found;
}

std::optional<std::vector<std::string>> split_pointer(std::string_view pointer) {
  std::vector<std::string> parts;
  if (!pointer.empty() && pointer.front() != '/') return std::nullopt;
  for (std::size_t at = 0; at < pointer.size(); ++at) {
    const char c = pointer[at];
    if (c == '/') {
      parts.emplace_back();
    } else if (c != '~') {
      parts.back() += c;
    } else {
      const char which = at + 1 < pointer.size() ? pointer[++at] : '\0';
      if (which != '0' && which != '1') return std::nullopt;
      parts.back() += which == '0' ? '~' : '/';
    }
  }
  return parts;
}

LineColumn line_column(std::string_view text, std::size_t offset) {
  const auto before = text.substr(0, std::min(offset, text.size()));
  const auto newline = before.rfind('\n');
  LineColumn place;
  place.line += static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n'));
  auto line = newline == std::string_view::npos ? before : before.substr(newline + 1);
  if (newline == std::string_view::npos) line.remove_prefix(byte_order_mark_bytes(line));
  place.column += static_cast<std::size_t>(std::count_if(
      line.begin(), line.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
  return place;
}

}  // namespace gradmon

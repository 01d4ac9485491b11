// SPDX-License-Identifier: Apache-2.0
#include "control/config/json_text.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <map>

#include "control/text/utf8.h"

namespace gradmon {
namespace {

enum class Next : std::uint8_t { value, first_value, key, first_key, colon, comma, nothing };

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c); }
bool is_high_surrogate(std::uint32_t code) { return code >= 0xD800 && code < 0xDC00; }
bool is_low_surrogate(std::uint32_t code) { return code >= 0xDC00 && code < 0xE000; }

std::string hex_byte(char byte) {
  constexpr char digits[] = "0123456789abcdef";
  const auto value = static_cast<unsigned char>(byte);
  return {'0', 'x', digits[value >> 4U], digits[value & 15U]};
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20; }

// 3 if `text` begins with a UTF-8 BOM, else 0.
std::size_t byte_order_mark_bytes(std::string_view text) {
  return text.substr(0, kByteOrderMark.size()) == kByteOrderMark ? kByteOrderMark.size() : 0;
}

// Finds the places of a text's values, and its first fault.
class Locator {
 public:
  explicit Locator(JsonText& out) : text_(out.text), nodes_(out.nodes), fault_(out.fault) {}

  void run() {
    if (text_.size() > kMaxJsonBytes) {
      fail(0, std::to_string(text_.size()) + " bytes", "at most 1 MiB");
    } else if (text_.substr(0, 2) == "\xFF\xFE" || text_.substr(0, 2) == "\xFE\xFF" ||
               text_.substr(0, 4).find('\0') != std::string_view::npos) {
      fail(0, "NUL bytes or UTF-16", "UTF-8");
    } else {
      at_ = byte_order_mark_bytes(text_);
      while (advance()) {
      }
    }
  }

 private:
  // Reads one token. Returns false at the end of the text or at a fault.
  bool advance() {
    at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size());
    if (at_ == text_.size())
      return next_ != Next::nothing &&
             fail(at_, nodes_.empty() ? "an empty file" : "the end of the file", wanted());
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
    const auto end = end_of_string();
    if (end == 0) return false;
    key_ = span(at_, end);
    at_ = end;
    next_ = Next::colon;
    return true;
  }

  bool read_value(char c) {
    if (c == '{' || c == '[') return open(c == '{' ? JsonKind::object : JsonKind::array);
    if (c == '"') return scalar(JsonKind::string, end_of_string());
    if (c == '-' || is_digit(c)) return scalar(JsonKind::number, end_of_number());
    constexpr std::array<std::pair<std::string_view, JsonKind>, 3> words{
        {{"true", JsonKind::boolean}, {"false", JsonKind::boolean}, {"null", JsonKind::null}}};
    for (const auto& [word, kind] : words) {
      if (word_here() == word) return scalar(kind, at_ + word.size());
    }
    return fail_here();
  }

  // `end`: of the token here; 0: it is faulty.
  bool scalar(JsonKind kind, std::size_t end) {
    if (end == 0 || !add(kind, end)) return false;
    at_ = end;
    next_ = open_.empty() ? Next::nothing : Next::comma;
    return true;
  }

  bool open(JsonKind kind) {
    if (open_.size() == kMaxJsonDepth)
      return fail(at_, "nesting deeper than " + std::to_string(kMaxJsonDepth) + " levels", "");
    if (!add(kind, at_ + 1)) return false;
    open_.push_back({static_cast<std::uint32_t>(nodes_.size() - 1), kNoJsonNode});
    return step(kind == JsonKind::object ? Next::first_key : Next::first_value);
  }

  bool close() {
    ++at_;
    nodes_[open_.back().node].value.end = static_cast<std::uint32_t>(at_);
    open_.pop_back();
    next_ = open_.empty() ? Next::nothing : Next::comma;
    return true;
  }

  bool add(JsonKind kind, std::size_t end) {
    const auto index = static_cast<std::uint32_t>(nodes_.size());
    if (index == kMaxJsonValues)
      return fail(at_, "more than " + std::to_string(kMaxJsonValues) + " values", "");
    JsonNode node;
    node.key = std::exchange(key_, JsonSpan{});
    node.value = span(at_, end);
    node.kind = kind;
    if (!open_.empty()) {
      node.parent = open_.back().node;
      ++nodes_[node.parent].children;
      const auto before = std::exchange(open_.back().last_child, index);
      if (before != kNoJsonNode) nodes_[before].next = index;
    }
    nodes_.push_back(node);
    return true;
  }

  // The offset just after the string that begins here; 0 after a fault.
  std::size_t end_of_string() {
    for (std::size_t at = at_ + 1; at < text_.size();) {
      const char c = text_[at];
      if (c == '"') return at + 1;
      const bool newline = c == '\n' || c == '\r';
      if (newline) return fail(at, "the end of the line", "a closing quote");
      if (is_control(c)) return fail(at, "control character " + hex_byte(c), "an escape such as \\u0001");
      const auto length = c == '\\' ? escape_bytes(at) : utf8_character(text_, at).bytes;
      if (length == 0)
        return !fault_ &&
               fail(at, "byte " + hex_byte(c) + " at byte offset " + std::to_string(at), "valid UTF-8");
      at += length;
    }
    return fail(text_.size(), "the end of the file", "a closing quote");
  }

  // The length of the escape at `at`, a backslash; 0 after a fault.
  std::size_t escape_bytes(std::size_t at) {
    const auto rest = text_.substr(at + 1);
    if (!rest.empty() && std::string_view("\"\\/bfnrt").find(rest[0]) != std::string_view::npos) return 2;
    if (rest.empty() || rest[0] != 'u')
      return fail(at, "the escape " + excerpt(text_.substr(at, 2)),
                  R"(one of \" \\ \/ \b \f \n \r \t \uXXXX (a backslash is written \\))");
    const auto code = hex4(at + 2);
    if (!code) return fail(at, excerpt(text_.substr(at, 6)), "four hex digits after \\u");
    if (is_high_surrogate(*code) && text_.substr(at + 6, 2) == "\\u") {
      if (const auto low = hex4(at + 8); low && is_low_surrogate(*low)) return 12;
    }
    if (is_high_surrogate(*code) || is_low_surrogate(*code))
      return fail(at, "the lone surrogate " + excerpt(text_.substr(at, 6)),
                  "a pair of surrogates, or the character itself");
    return 6;
  }

  std::optional<std::uint32_t> hex4(std::size_t at) const {
    const auto digits = text_.substr(std::min(at, text_.size()), 4);
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (error != std::errc{} || end - digits.data() != 4) return std::nullopt;
    return value;
  }

  // The offset just after the number that begins here; 0 after a fault.
  std::size_t end_of_number() {
    std::size_t at = at_;
    const auto peek = [&] { return at < text_.size() ? text_[at] : '\0'; };
    const auto skip_digits = [&] {
      const auto from = at;
      while (is_digit(peek())) ++at;
      return at > from;
    };
    const auto fault = [&](const char* expected) {
      const auto end = std::min(text_.find_first_of(" \t\r\n,]}", at_), text_.size());
      return fail(at_, excerpt(text_.substr(at_, end - at_)), expected);
    };
    if (peek() == '-') ++at;
    const auto first = at;
    if (!skip_digits()) return fault("a number (JSON has no NaN and no Infinity)");
    if (text_[first] == '0' && at > first + 1) return fault("a number without leading zeros");
    if (peek() == '.') {
      ++at;
      if (!skip_digits()) return fault("a digit after the decimal point");
    }
    if (peek() == 'e' || peek() == 'E') {
      ++at;
      if (peek() == '+' || peek() == '-') ++at;
      if (!skip_digits()) return fault("a digit in the exponent");
    }
    if (at < text_.size() && std::string_view(" \t\r\n,]}:").find(text_[at]) == std::string_view::npos)
      return fault("a decimal number");
    return at;
  }

  bool fail_here() {
    const char c = text_[at_];
    const auto rest = text_.substr(at_, 2);
    const auto word = word_here();
    const bool after_comma = next_ == Next::key || (next_ == Next::value && parent_kind() == JsonKind::array);
    if (after_comma && (c == '}' || c == ']'))
      return fail(comma_, "a comma before \"" + std::string(1, c) + "\"", "no trailing comma");
    if (c == '#' || rest == "//" || rest == "/*")
      return fail(at_, "a comment (JSON has no comments)", wanted());
    if (c == '\'') return fail(at_, "a single quote", wanted() + " (strings have double quotes)");
    if (next_ == Next::nothing)
      return fail(at_, token_here(), "the end of the file (one JSON object, no more)");
    if (word == "True" || word == "False" || word == "None")
      return fail(at_, std::string(word), wanted() + " (JSON writes true, false, null)");
    if (word == "NaN" || word == "nan" || word == "Infinity" || word == "inf")
      return fail(at_, std::string(word), wanted() + " (JSON has no NaN and no Infinity)");
    if (utf8_character(text_, at_).bytes == 0)
      return fail(at_, "byte offset " + std::to_string(at_) + ": " + excerpt(text_.substr(at_, 1)),
                  "valid UTF-8");
    return fail(at_, token_here(), wanted());
  }

  std::string wanted() const {
    if (next_ == Next::comma && parent_kind() == JsonKind::object) return R"("," or "}")";
    constexpr std::array<const char*, 7> all{
        "a value", R"(a value or "]")", "a key in double quotes", R"(a key in double quotes or "}")",
        R"(":")",  R"("," or "]")",     "the end of the file"};
    return all[static_cast<std::size_t>(next_)];
  }

  std::string token_here() const {
    if (text_[at_] == '"') return "a string";
    const auto word = word_here();
    const auto character = text_.substr(at_, std::max<std::size_t>(1, utf8_character(text_, at_).bytes));
    return '"' + excerpt(word.empty() ? character : word) + '"';
  }
  std::string_view word_here() const {
    auto end = at_;
    while (end < text_.size() && is_word(text_[end])) ++end;
    return text_.substr(at_, end - at_);
  }

  bool fail(std::size_t offset, std::string found, std::string expected) {
    fault_ = JsonFault{offset, std::move(found), std::move(expected)};
    return false;
  }
  bool step(Next next) {
    ++at_;
    next_ = next;
    return true;
  }
  JsonKind parent_kind() const { return open_.empty() ? JsonKind::null : nodes_[open_.back().node].kind; }
  static JsonSpan span(std::size_t begin, std::size_t end) {
    return {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)};
  }

  struct Container {
    std::uint32_t node;
    std::uint32_t last_child;
  };

  const std::string_view text_;
  std::vector<JsonNode>& nodes_;
  std::optional<JsonFault>& fault_;
  std::size_t at_ = 0;
  std::size_t comma_ = 0;  // offset of the last comma
  Next next_ = Next::value;
  JsonSpan key_;
  std::vector<Container> open_;  // the containers that enclose at_
};

// The value of a number that simdjson refuses.
double oversized_number(std::string_view number) {
  double value = 0;
  if (std::from_chars(number.data(), number.data() + number.size(), value).ec == std::errc{}) return value;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return number.front() == '-' ? -kInfinity : kInfinity;
}

// Reads one valid token.
JsonScalar read_token(std::string_view token) {
  namespace dom = simdjson::dom;
  if (token.front() == '"' && token.find('\\') == std::string_view::npos)
    return std::string(token.substr(1, token.size() - 2));
  const simdjson::padded_string padded(token);
  dom::parser parser;
  dom::element value;
  if (parser.parse(padded).get(value) != simdjson::SUCCESS) return oversized_number(token);
  switch (value.type()) {
    case dom::element_type::STRING:
      return std::string(std::string_view(value));
    case dom::element_type::INT64:
      return std::int64_t(value);
    case dom::element_type::UINT64:
      return std::uint64_t(value);
    case dom::element_type::DOUBLE:
      return double(value);
    case dom::element_type::BOOL:
      return bool(value);
    default:
      return {};
  }
}

std::optional<std::size_t> to_index(std::string_view part) {
  std::size_t index = 0;
  const auto* const end = part.data() + part.size();
  const auto [stop, error] = std::from_chars(part.data(), end, index);
  const bool canonical = error == std::errc{} && stop == end && (part.size() == 1 || part.front() != '0');
  return canonical ? std::optional(index) : std::nullopt;
}

}  // namespace

std::string found_and_expected(const std::string& found, const std::string& expected) {
  if (expected.empty()) return found;
  return (found.empty() ? "" : "found " + found + ", ") + "expected " + expected;
}

std::string encode_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (is_control(c)) {
      out += "\\u00" + hex_byte(c).substr(2);
    } else {
      out += (c == '"' || c == '\\' ? "\\" : "") + std::string(1, c);
    }
  }
  return out + '"';
}

std::string excerpt(std::string_view text) {
  constexpr std::size_t kLength = 40;
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    if (at >= kLength) return out + "...";
    const char c = text[at];
    const auto length = utf8_character(text, at).bytes;
    const bool printable = length > 0 && !is_control(c) && c != '\x7F';
    const bool blank = c == '\n' || c == '\r' || c == '\t';
    out += printable ? std::string(text.substr(at, length)) : blank ? " " : "\\x" + hex_byte(c).substr(2);
    at += printable ? length : 1;
  }
  return out;
}

JsonText::JsonText(std::string json) : text(std::move(json)) { Locator(*this).run(); }

std::vector<std::uint32_t> JsonText::children(std::uint32_t node) const {
  std::vector<std::uint32_t> all;
  if (nodes[node].children == 0) return all;
  all.reserve(nodes[node].children);
  for (auto i = node + 1; i != kNoJsonNode; i = nodes[i].next) all.push_back(i);
  return all;
}

std::string JsonText::key(std::uint32_t node) const {
  return std::get<std::string>(read_token(key_literal(node)));
}

JsonScalar JsonText::scalar(std::uint32_t node) const {
  const JsonKind kind = nodes[node].kind;
  return kind == JsonKind::object || kind == JsonKind::array ? JsonScalar{} : read_token(literal(node));
}

std::optional<std::uint32_t> JsonText::member(std::uint32_t object, std::string_view key) const {
  std::optional<std::uint32_t> found;
  if (nodes[object].kind != JsonKind::object) return found;
  for (const auto child : children(object)) {
    if (this->key(child) == key) found = child;
  }
  return found;
}

std::optional<std::uint32_t> JsonText::child(std::uint32_t node, std::string_view part) const {
  if (nodes[node].kind == JsonKind::object) return member(node, part);
  const auto index = nodes[node].kind == JsonKind::array ? to_index(part) : std::nullopt;
  return index && *index < nodes[node].children ? std::optional(children(node)[*index]) : std::nullopt;
}

std::optional<std::uint32_t> JsonText::find(std::string_view pointer) const {
  const auto parts = split_pointer(pointer);
  std::optional<std::uint32_t> node;
  if (!fault && parts) node = 0;
  for (std::size_t i = 0; node && i < parts->size(); ++i) node = child(*node, (*parts)[i]);
  return node;
}

std::string JsonText::pointer_to(std::uint32_t node) const {
  std::string pointer;
  for (; nodes[node].parent != kNoJsonNode; node = nodes[node].parent) {
    const auto parent = nodes[node].parent;
    const auto siblings = children(parent);
    const auto index = std::find(siblings.begin(), siblings.end(), node) - siblings.begin();
    const bool in_object = nodes[parent].kind == JsonKind::object;
    pointer.insert(0, "/" + (in_object ? escape_pointer_part(key(node)) : std::to_string(index)));
  }
  return pointer;
}

std::vector<std::pair<std::uint32_t, std::uint32_t>> JsonText::duplicate_keys() const {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> duplicates;
  for (std::uint32_t object = 0; object < nodes.size(); ++object) {
    if (nodes[object].kind != JsonKind::object || nodes[object].children < 2) continue;
    std::vector<std::pair<std::string, std::uint32_t>> keys;
    for (const auto child : children(object)) keys.emplace_back(key(child), child);
    std::sort(keys.begin(), keys.end());
    for (std::size_t i = 1; i < keys.size(); ++i) {
      if (keys[i - 1].first == keys[i].first) duplicates.emplace_back(keys[i - 1].second, keys[i].second);
    }
  }
  return duplicates;
}

LineColumn JsonText::place_of(std::size_t offset) const {
  const auto before = std::string_view(text).substr(0, offset);
  const auto newline = before.rfind('\n');
  auto line = newline == std::string_view::npos ? before : before.substr(newline + 1);
  if (newline == std::string_view::npos) line.remove_prefix(byte_order_mark_bytes(line));
  const auto starts_character = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; };
  return {1 + static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n')),
          1 + static_cast<std::size_t>(std::count_if(line.begin(), line.end(), starts_character))};
}

std::string escape_pointer_part(std::string_view key) {
  std::string part;
  for (const char c : key) part += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return part;
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

namespace {

using Parts = std::vector<std::string>;

std::string describe(const JsonText& json) {
  const auto place = json.place_of(json.fault->offset);
  return std::to_string(place.line) + ":" + std::to_string(place.column) + ": " +
         found_and_expected(json.fault->found, json.fault->expected);
}

std::string member_text(Parts::const_iterator part, Parts::const_iterator end, std::string_view value) {
  const auto key = encode_string(*part) + ": ";
  if (++part == end) return key + std::string(value);
  return key + "{" + member_text(part, end, value) + "}";
}

std::string indentation_of_line(std::string_view text, std::size_t at) {
  const auto newline = text.rfind('\n', at);
  const auto begin = newline == std::string_view::npos ? 0 : newline + 1;
  const auto end = std::min(text.find_first_not_of(" \t", begin), at);
  return std::string(text.substr(begin, end - begin));
}

std::string with_member(const JsonText& json, std::uint32_t object, const std::string& member) {
  const auto& node = json.nodes[object];
  const std::size_t inside = node.value.begin + 1;
  std::string out = json.text;
  if (node.children != 0) {
    const std::size_t first = json.nodes[object + 1].key.begin;
    const auto lead = first == inside ? std::string(" ") : json.text.substr(inside, first - inside);
    return out.insert(first, member + "," + lead);
  }
  const auto blank = json.text.substr(inside, node.value.end - 1 - inside);
  if (blank.find('\n') == std::string::npos) return out.insert(inside, member);
  const std::string line_end = blank.find("\r\n") == std::string::npos ? "\n" : "\r\n";
  return out.insert(inside, line_end + indentation_of_line(json.text, node.value.end - 1) + "  " + member);
}

// The edit may exceed a bound (bytes, levels, values) or add a key that is not valid UTF-8.
Result<JsonText> checked(std::string edited) {
  JsonText json(std::move(edited));
  if (json.fault) return tl::unexpected("the result would not be valid JSON: " + describe(json));
  return json;
}

}  // namespace

Result<JsonText> set_value(const JsonText& json, std::string_view json_pointer, std::string_view value_json) {
  const JsonText value{std::string(value_json)};
  if (value.fault) return tl::unexpected("the value is not valid JSON: " + describe(value));
  if (json.fault) return tl::unexpected(describe(json));
  if (const auto duplicates = json.duplicate_keys(); !duplicates.empty())
    return tl::unexpected("duplicate key " + json.pointer_to(duplicates.front().second));
  const auto parts = split_pointer(json_pointer);
  if (!parts || parts->empty())
    return tl::unexpected("\"" + std::string(json_pointer) + "\" is not a JSON pointer");

  const auto bytes = value.literal(0);
  std::uint32_t node = 0;
  for (auto part = parts->begin(); part != parts->end(); ++part) {
    const auto child = json.child(node, *part);
    if (!child && json.nodes[node].kind != JsonKind::object)
      return tl::unexpected("there is no \"" + *part + "\" in " + json.pointer_to(node));
    if (!child) return checked(with_member(json, node, member_text(part, parts->end(), bytes)));
    node = *child;
  }
  const auto span = json.nodes[node].value;
  return checked(std::string(json.text).replace(span.begin, span.end - span.begin, bytes));
}

Result<JsonText> set_values(JsonText json, const JsonEdits& edits) {
  for (const auto& [key, value] : edits) {
    auto edited = set_value(json, to_pointer(key), value);
    if (!edited) return tl::unexpected(key + ": " + edited.error());
    json = std::move(*edited);
  }
  return json;
}

Result<std::string> set_values(std::string text, const JsonEdits& edits) {
  return set_values(JsonText(std::move(text)), edits).map([](JsonText&& json) {
    return std::move(json.text);
  });
}

std::optional<std::string_view> value_at(std::string_view text, std::string_view json_pointer) {
  const JsonText json{std::string(text)};
  const auto node = json.find(json_pointer);
  if (!node) return std::nullopt;
  const auto span = json.nodes[*node].value;
  return text.substr(span.begin, span.end - span.begin);
}

std::string to_pointer(std::string_view key_or_pointer) {
  if (!key_or_pointer.empty() && key_or_pointer.front() == '/') return std::string(key_or_pointer);
  return "/" + escape_pointer_part(key_or_pointer);
}

// One pass over the text for any number of keys.
Result<std::string> capture_config(std::string_view config_text) {
  const JsonText json{std::string(config_text)};
  const auto collect = json.find("/on_alert/collect");
  if (!collect || json.nodes[*collect].kind != JsonKind::object)
    return tl::unexpected(std::string("no on_alert.collect"));
  std::map<std::string, std::uint32_t> wanted;  // by decoded key
  for (const auto at : json.children(*collect)) wanted.emplace(json.key(at), at);
  std::string replaced;  // the config from its first member on
  const std::size_t first = json.nodes[0].value.begin + 1;
  std::size_t copied = first;
  for (const auto at : json.children(0)) {
    const auto by = wanted.find(json.key(at));
    if (by == wanted.end()) continue;
    replaced += config_text.substr(copied, json.nodes[at].value.begin - copied);
    replaced += json.literal(by->second);
    copied = json.nodes[at].value.end;
    wanted.erase(by);
  }
  replaced += config_text.substr(copied);
  std::string text(config_text.substr(0, first));
  for (const auto& [key, at] : wanted)  // keys missing in the config
    text += std::string(json.key_literal(at)) + ": " + std::string(json.literal(at)) + ", ";
  text += replaced;
  const JsonText made(std::move(text));
  if (made.fault)
    return tl::unexpected("with the keys of on_alert.collect: " +
                          found_and_expected(made.fault->found, made.fault->expected));
  return made.text;
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "control/config/json_edit.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "control/config/json_locate.h"

namespace gradmon {
namespace {

using Parts = std::vector<std::string>;

std::string describe(std::string_view text, const JsonFault& fault) {
  const auto place = line_column(text, fault.offset);
  return std::to_string(place.line) + ":" + std::to_string(place.column) + ": " +
         found_and_expected(fault.found, fault.expected);
}

std::optional<std::uint32_t> find_item(const JsonDocument& document, std::uint32_t array,
                                       std::string_view part) {
  std::uint32_t index = 0;
  const auto* const end = part.data() + part.size();
  const auto [stop, error] = std::from_chars(part.data(), end, index);
  const bool canonical = error == std::errc{} && stop == end && (part.size() == 1 || part.front() != '0');
  if (!canonical || index >= document.nodes[array].children) return std::nullopt;
  auto item = array + 1;
  for (; index > 0; --index) item = document.nodes[item].next;
  return item;
}

std::optional<std::uint32_t> find_child(const JsonDocument& document, std::string_view text,
                                        std::uint32_t node, std::string_view part) {
  switch (document.nodes[node].kind) {
    case JsonKind::object:
      return find_member(document, text, node, part);
    case JsonKind::array:
      return find_item(document, node, part);
    default:
      return std::nullopt;
  }
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

std::string with_member(std::string_view text, const JsonDocument& document, std::uint32_t object,
                        const std::string& member) {
  const auto& node = document.nodes[object];
  const std::size_t inside = node.value.begin + 1;
  std::string out(text);
  if (node.children != 0) {
    const std::size_t first = document.nodes[object + 1].key.begin;
    const auto lead = first == inside ? std::string(" ") : std::string(text.substr(inside, first - inside));
    return out.insert(first, member + "," + lead);
  }
  const auto blank = text.substr(inside, node.value.end - 1 - inside);
  if (blank.find('\n') == std::string_view::npos) return out.insert(inside, member);
  const std::string line_end = blank.find("\r\n") == std::string_view::npos ? "\n" : "\r\n";
  return out.insert(inside, line_end + indentation_of_line(text, node.value.end - 1) + "  " + member);
}

// Parses the result again. The edit may exceed a bound (bytes, levels, values) or add a key that is not
// valid UTF-8.
tl::expected<std::string, std::string> checked(std::string edited) {
  const auto document = locate_json(edited);
  if (document.fault)
    return tl::unexpected("the result would not be valid JSON: " + describe(edited, *document.fault));
  return edited;
}

// The members of an object, by their decoded keys.
std::map<std::string, std::uint32_t> members_by_key(const JsonDocument& document, std::string_view text,
                                                    std::uint32_t object) {
  std::map<std::string, std::uint32_t> members;
  if (document.nodes[object].children == 0) return members;
  for (auto at = object + 1; at != kNoJsonNode; at = document.nodes[at].next)
    members.emplace(decode_string(document.nodes[at].key.of(text)), at);
  return members;
}

std::optional<std::uint32_t> find_collect(const JsonDocument& document, std::string_view text) {
  if (document.fault) return std::nullopt;
  const auto on_alert = find_member(document, text, 0, "on_alert");
  return on_alert ? find_member(document, text, *on_alert, "collect") : std::nullopt;
}

}  // namespace

tl::expected<std::string, std::string> set_value(std::string_view text, std::string_view json_pointer,
                                                 std::string_view value_json) {
  const auto value = locate_json(value_json);
  if (value.fault)
    return tl::unexpected("the value is not valid JSON: " + describe(value_json, *value.fault));
  const auto document = locate_json(text);
  if (document.fault) return tl::unexpected(describe(text, *document.fault));
  if (const auto duplicates = duplicate_keys(document, text); !duplicates.empty())
    return tl::unexpected("duplicate key " + json_pointer_to(document, text, duplicates.front().second));
  const auto parts = split_pointer(json_pointer);
  if (!parts || parts->empty())
    return tl::unexpected("\"" + std::string(json_pointer) + "\" is not a JSON pointer");

  const auto bytes = value.nodes.front().value.of(value_json);
  std::uint32_t node = 0;
  for (auto part = parts->begin(); part != parts->end(); ++part) {
    const auto child = find_child(document, text, node, *part);
    if (!child && document.nodes[node].kind != JsonKind::object) {
      return tl::unexpected("there is no \"" + *part + "\" in " + json_pointer_to(document, text, node));
    }
    if (!child) return checked(with_member(text, document, node, member_text(part, parts->end(), bytes)));
    node = *child;
  }
  const auto span = document.nodes[node].value;
  return checked(std::string(text).replace(span.begin, span.end - span.begin, bytes));
}

std::optional<std::string_view> value_at(std::string_view text, std::string_view json_pointer) {
  const auto document = locate_json(text);
  const auto parts = split_pointer(json_pointer);
  if (document.fault || !parts) return std::nullopt;
  std::uint32_t node = 0;
  for (const auto& part : *parts) {
    const auto child = find_child(document, text, node, part);
    if (!child) return std::nullopt;
    node = *child;
  }
  return document.nodes[node].value.of(text);
}

std::string to_pointer(std::string_view key_or_pointer) {
  if (!key_or_pointer.empty() && key_or_pointer.front() == '/') return std::string(key_or_pointer);
  return "/" + escape_pointer_part(key_or_pointer);
}

tl::expected<std::string, std::string> set_values(
    std::string text, const std::vector<std::pair<std::string, std::string>>& edits) {
  for (const auto& [key, value] : edits) {
    auto edited = set_value(text, to_pointer(key), value);
    if (!edited) return tl::unexpected(key + ": " + edited.error());
    text = std::move(*edited);
  }
  return text;
}

// One pass over the text for any number of keys.
tl::expected<std::string, std::string> capture_config(std::string_view config_text) {
  const JsonDocument document = locate_json(config_text);
  const auto collect = find_collect(document, config_text);
  if (!collect || document.nodes[*collect].kind != JsonKind::object)
    return tl::unexpected(std::string("no on_alert.collect"));
  auto wanted = members_by_key(document, config_text, *collect);
  std::string replaced;  // the config from its first member on
  const std::size_t first = document.nodes[0].value.begin + 1;
  std::size_t copied = first;
  for (std::uint32_t at = 1; at != kNoJsonNode; at = document.nodes[at].next) {
    const auto by = wanted.find(decode_string(document.nodes[at].key.of(config_text)));
    if (by == wanted.end()) continue;
    const JsonSpan value = document.nodes[at].value;
    replaced += config_text.substr(copied, value.begin - copied);
    replaced += document.nodes[by->second].value.of(config_text);
    copied = value.end;
    wanted.erase(by);
  }
  replaced += config_text.substr(copied);
  std::string text(config_text.substr(0, first));
  for (const auto& [key, at] : wanted) {  // keys missing in the config
    text += document.nodes[at].key.of(config_text);
    text += ": ";
    text += document.nodes[at].value.of(config_text);
    text += ", ";
  }
  text += replaced;
  if (const auto made = locate_json(text); made.fault)
    return tl::unexpected("with the keys of on_alert.collect: " +
                          found_and_expected(made.fault->found, made.fault->expected));
  return text;
}

}  // namespace gradmon

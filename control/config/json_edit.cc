// SPDX-License-Identifier: Apache-2.0
#include "control/config/json_edit.h"

#include <algorithm>
#include <map>

namespace gradmon {
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
tl::expected<JsonText, std::string> checked(std::string edited) {
  JsonText json(std::move(edited));
  if (json.fault) return tl::unexpected("the result would not be valid JSON: " + describe(json));
  return json;
}

}  // namespace

tl::expected<JsonText, std::string> set_value(const JsonText& json, std::string_view json_pointer,
                                              std::string_view value_json) {
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

tl::expected<JsonText, std::string> set_values(JsonText json, const JsonEdits& edits) {
  for (const auto& [key, value] : edits) {
    auto edited = set_value(json, to_pointer(key), value);
    if (!edited) return tl::unexpected(key + ": " + edited.error());
    json = std::move(*edited);
  }
  return json;
}

tl::expected<std::string, std::string> set_values(std::string text, const JsonEdits& edits) {
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
tl::expected<std::string, std::string> capture_config(std::string_view config_text) {
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

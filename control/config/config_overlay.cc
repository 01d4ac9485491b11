// SPDX-License-Identifier: Apache-2.0
#include "control/config/config_overlay.h"

#include <map>
#include <optional>
#include <utility>

#include "control/config/json_locate.h"
#include "control/config/json_token.h"

namespace gradmon {
namespace {

// The members of an object, by their decoded keys.
std::map<std::string, std::uint32_t> members_of(const JsonDocument& document, std::string_view text,
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

// One pass over the text for any number of keys.
tl::expected<std::string, std::string> capture_config(std::string_view config_text) {
  const JsonDocument document = locate_json(config_text);
  const auto collect = find_collect(document, config_text);
  if (!collect || document.nodes[*collect].kind != JsonKind::object)
    return tl::unexpected(std::string("no on_alert.collect"));
  auto wanted = members_of(document, config_text, *collect);
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

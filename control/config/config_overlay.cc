// SPDX-License-Identifier: Apache-2.0
#include "control/config/config_overlay.h"

#include <utility>
#include <vector>

#include "control/config/json_edit.h"
#include "control/config/json_locate.h"
#include "control/config/json_token.h"

namespace gradmon {

tl::expected<std::string, std::string> capture_config(std::string_view config_text) {
  const auto collect = value_at(config_text, "/on_alert/collect");
  if (!collect) return tl::unexpected(std::string("no on_alert.collect"));
  const JsonDocument document = locate_json(*collect);
  std::vector<std::pair<std::string, std::string>> edits;
  if (!document.nodes.empty() && document.nodes.front().children > 0) {
    for (std::uint32_t at = 1; at != kNoJsonNode; at = document.nodes[at].next) {
      const JsonNode& member = document.nodes[at];
      edits.emplace_back("/" + escape_pointer_part(decode_string(member.key.of(*collect))),
                         std::string(member.value.of(*collect)));
    }
  }
  return set_values(std::string(config_text), edits);
}

}  // namespace gradmon

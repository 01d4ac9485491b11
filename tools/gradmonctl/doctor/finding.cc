// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/doctor/finding.h"

#include <algorithm>

#include "tools/gradmonctl/cli/json_rule.h"
#include "tools/gradmonctl/cli/printable.h"

namespace gradmon {

std::string_view name_of(Finding::Level level) {
  return level == Finding::Level::ok ? "ok" : level == Finding::Level::warn ? "warn" : "fail";
}

Finding::Level worst(const Findings& findings) {
  Finding::Level level = Finding::Level::ok;
  for (const Finding& finding : findings) level = std::max(level, finding.level);
  return level;
}

std::string findings_text(const Findings& findings) {
  std::size_t width = 0;
  for (const Finding& finding : findings) width = std::max(width, finding.check.size());
  std::string text;
  for (const Finding& finding : findings) {
    std::string level(name_of(finding.level));
    level.resize(6, ' ');
    const std::string margin = '\n' + std::string(width + 8, ' ');
    text += level + finding.check + std::string(width - finding.check.size() + 2, ' ') +
            printable_lines(finding.text, margin);
    if (!finding.remedy.empty()) text += margin + "→ " + printable_lines(finding.remedy, margin + "  ");
    text += '\n';
  }
  return text;
}

std::string findings_json(const Findings& findings) {
  OrderedJson list = OrderedJson::array();
  for (const Finding& finding : findings) {
    list.push_back({{"check", finding.check},
                    {"level", name_of(finding.level)},
                    {"text", finding.text},
                    {"remedy", text_or_null(finding.remedy)}});
  }
  const OrderedJson json{{"schema_version", kJsonSchemaVersion},
                         {"level", name_of(worst(findings))},
                         {"findings", std::move(list)}};
  return json_text(json, JsonLayout::indented);
}

}  // namespace gradmon

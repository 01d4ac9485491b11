// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gradmon {

// The result of one check by `gradmonctl doctor`.
struct Finding {
  enum class Level : std::uint8_t { ok, warn, fail };
  Level level = Level::ok;
  std::string check;   // the name of the check: "config watch"
  std::string text;    // the finding
  std::string remedy;  // the user's remedy; "": none
};

using Findings = std::vector<Finding>;

std::string_view name_of(Finding::Level level);
Finding::Level worst(const Findings& findings);

// Readable UTF-8 text: the lines of each finding, with its remedy below.
std::string findings_text(const Findings& findings);
// One JSON object that follows json_rule.h.
std::string findings_json(const Findings& findings);

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gradmon {

// What `doctor` has found out about one thing.
struct Finding {
  enum class Level : std::uint8_t { ok, warn, fail };
  Level level = Level::ok;
  std::string check;   // what was looked at: "config watch"
  std::string text;    // what was found
  std::string remedy;  // what to do; "" where nothing is to be done
};

using Findings = std::vector<Finding>;

std::string_view name_of(Finding::Level level);
Finding::Level worst(const Findings& findings);

// For people: a line each, or as many as its text has, remedies below. UTF-8.
std::string findings_text(const Findings& findings);
// One JSON object, by the rules of json_rule.h.
std::string findings_json(const Findings& findings);

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "tools/analyse/find/divergence.h"
#include "tools/gradmonctl/show/json_rule.h"

namespace gradmon {

struct DiffReport {
  const Run& a;
  const Run& b;
  Tolerance tolerance;
  const Divergence& found;
};

enum class ListLength : std::uint8_t { a_few, all };

std::string diff_text(const DiffReport& report, ListLength length);
OrderedJson diff_json(const DiffReport& report, const Problems& problems);

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/rows/row.h"

#include <algorithm>

namespace gradmon {

Field field_named(std::string_view title) {
  for (Field field = 0; field < kFields; ++field) {
    if (title == name_of_field(field)) return field;
  }
  return kFields;
}

std::optional<Kind> kind_named(std::string_view name) {
  const auto found = std::find(kKindNames.begin(), kKindNames.end(), name);
  if (found == kKindNames.end()) return std::nullopt;
  return static_cast<Kind>(found - kKindNames.begin());
}

}  // namespace gradmon

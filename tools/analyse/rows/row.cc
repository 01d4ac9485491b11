// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/rows/row.h"

namespace gradmon {

Field field_named(std::string_view title) {
  for (Field field = 0; field < kFields; ++field) {
    if (title == name_of_field(field)) return field;
  }
  return kFields;
}

}  // namespace gradmon

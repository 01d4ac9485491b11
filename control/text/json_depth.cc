// SPDX-License-Identifier: Apache-2.0
#include "control/text/json_depth.h"

#include <cstddef>

namespace gradmon {

bool is_nested_deeper(std::string_view json, int most) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (c == '"') quoted = !quoted;
    if (quoted && c == '\\') ++i;
    if (quoted) continue;
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (depth > most) return true;
  }
  return false;
}

}  // namespace gradmon

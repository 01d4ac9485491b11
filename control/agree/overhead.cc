// SPDX-License-Identifier: Apache-2.0
#include "control/agree/overhead.h"

#include <array>
#include <cstdio>

namespace gradmon {

std::string percent_text(double share) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), share < 0.0995 ? "%.2g %%" : "%.0f %%", 100 * share);
  return text.data();
}

}  // namespace gradmon

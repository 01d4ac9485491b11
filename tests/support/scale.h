// SPDX-License-Identifier: Apache-2.0
// How much the tests repeat: little in the quick tier, all of it with GRADMON_TEST_SCALE=full.
#pragma once

#include <cstdlib>
#include <string_view>

namespace gradmon {

inline bool full_scale() {
  const char* const scale = std::getenv("GRADMON_TEST_SCALE");
  return scale != nullptr && std::string_view(scale) == "full";
}

template <class Count>
Count scaled(Count quick, Count full) {
  return full_scale() ? full : quick;
}

}  // namespace gradmon

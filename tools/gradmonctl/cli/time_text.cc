// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/cli/time_text.h"

#include <array>
#include <cstdio>
#include <ctime>

namespace gradmon {

std::string utc_text(WallTime time) {
  if (time == 0) return {};
  const std::time_t seconds = time / 1000;
  std::tm parts{};
  std::array<char, 64> text{};
  if (gmtime_r(&seconds, &parts) == nullptr) return "?";
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text.data();
}

std::string span_text(std::int64_t milliseconds) {
  const std::int64_t seconds = milliseconds / 1000;
  if (milliseconds < 1000) return std::to_string(milliseconds) + " ms";
  if (seconds < 10) return std::to_string(seconds) + "." + std::to_string(milliseconds / 100 % 10) + " s";
  if (seconds < 120) return std::to_string(seconds) + " s";
  if (seconds < 7200) return std::to_string(seconds / 60) + " min";
  return std::to_string(seconds / 3600) + " h";
}

}  // namespace gradmon

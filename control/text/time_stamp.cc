// SPDX-License-Identifier: Apache-2.0
#include "control/text/time_stamp.h"

#include <algorithm>
#include <array>

namespace gradmon {
namespace {

constexpr std::array<std::string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                      "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
constexpr std::array<int, 12> kDaysBefore = {0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335};

// The number of two digits, if it is at most `most`.
std::optional<int> two_digits(std::string_view text, int most) {
  if (text.size() != 2 || text.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  const int number = (text[0] - '0') * 10 + (text[1] - '0');
  return number <= most ? std::optional(number) : std::nullopt;
}

}  // namespace

std::optional<std::int64_t> seconds_in_year(std::string_view time) {
  if (time.size() != kTimeStampLength || time[5] != '_' || time[8] != '-' || time[11] != '-')
    return std::nullopt;
  const auto* const month = std::find(kMonths.begin(), kMonths.end(), time.substr(0, 3));
  const auto day = two_digits(time.substr(3, 2), 31);
  const auto hour = two_digits(time.substr(6, 2), 23);
  const auto minute = two_digits(time.substr(9, 2), 59);
  const auto second = two_digits(time.substr(12, 2), 60);
  if (month == kMonths.end() || !day || *day == 0 || !hour || !minute || !second) return std::nullopt;
  const int days = kDaysBefore[static_cast<std::size_t>(month - kMonths.begin())] + *day - 1;
  return std::int64_t{86'400} * days + 3'600 * *hour + 60 * *minute + *second;
}

std::string time_stamp_of(std::time_t time) {
  std::tm local{};
  localtime_r(&time, &local);
  char rest[32];
  const std::size_t size = std::strftime(rest, sizeof rest, "%d_%H-%M-%S", &local);
  return std::string(kMonths[static_cast<std::size_t>(local.tm_mon)]).append(rest, size);
}

}  // namespace gradmon

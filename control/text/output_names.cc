// SPDX-License-Identifier: Apache-2.0
#include "control/text/output_names.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

namespace gradmon {
namespace {

constexpr std::size_t kTimeBytes = 14;  // "Nov24_12-04-37"
constexpr std::array<std::string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                      "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
constexpr std::array<int, 12> kDaysBefore = {0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335};

bool take(std::string_view& text, std::string_view beginning) {
  if (text.substr(0, beginning.size()) != beginning) return false;
  text.remove_prefix(beginning.size());
  return true;
}

template <typename Number>
bool take_number(std::string_view& text, Number& number) {
  if (text.empty() || text.front() < '0' || text.front() > '9') return false;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  text.remove_prefix(static_cast<std::size_t>(result.ptr - text.data()));
  return result.ec == std::errc();
}

// -1: it is no time.
std::int64_t seconds_in_year(std::string_view time) {
  const auto month = std::find(kMonths.begin(), kMonths.end(), time.substr(0, 3));
  int day = 0, hour = 0, minute = 0, second = 0;
  std::string_view rest = time.substr(std::min<std::size_t>(3, time.size()));
  if (month == kMonths.end() || !take_number(rest, day) || !take(rest, "_") || !take_number(rest, hour) ||
      !take(rest, "-") || !take_number(rest, minute) || !take(rest, "-") || !take_number(rest, second) ||
      !rest.empty() || day < 1 || day > 31 || hour > 23 || minute > 59 || second > 60)
    return -1;
  const int days = kDaysBefore[static_cast<std::size_t>(month - kMonths.begin())] + day - 1;
  return std::int64_t{86400} * days + 3600 * hour + 60 * minute + second;
}

}  // namespace

std::optional<RankDirectoryName> parse_rank_directory(std::string_view name) {
  RankDirectoryName parsed;
  parsed.time = name.substr(0, kTimeBytes);
  parsed.in_year = seconds_in_year(parsed.time);
  std::string_view rest = name.substr(std::min(kTimeBytes, name.size()));
  if (parsed.in_year < 0 || !take(rest, "-rank") || !take_number(rest, parsed.rank) || !take(rest, "-") ||
      rest.empty())
    return std::nullopt;
  parsed.id = rest;
  return parsed;
}

std::optional<KindFileName> parse_kind_file(std::string_view name) {
  for (std::size_t kind = 0; kind < kRecordKinds; ++kind) {
    KindFileName parsed;
    std::string_view rest = name;
    if (!take(rest, kKindNames[kind]) || !take(rest, "_") || !take_number(rest, parsed.first_step) ||
        !take(rest, "-") || !take_number(rest, parsed.last_step))
      continue;
    if (take(rest, ".r") && !take_number(rest, parsed.revision)) return std::nullopt;
    parsed.kind = static_cast<Kind>(kind);
    if (rest == ".csv" && parsed.first_step <= parsed.last_step) return parsed;
  }
  return std::nullopt;
}

std::string id_of_run_file(std::string_view name) {
  constexpr std::string_view kEnd = ".json";
  if (!take(name, "run-") || name.size() <= kEnd.size()) return "";
  const std::size_t id = name.size() - kEnd.size();
  return name.substr(id) == kEnd ? std::string(name.substr(0, id)) : "";
}

}  // namespace gradmon

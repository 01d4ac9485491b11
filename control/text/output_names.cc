// SPDX-License-Identifier: Apache-2.0
#include "control/text/output_names.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

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

std::string format_time_stamp(std::time_t time) {
  std::tm local{};
  localtime_r(&time, &local);
  char rest[32];
  const std::size_t size = std::strftime(rest, sizeof rest, "%d_%H-%M-%S", &local);
  return std::string(kMonths[static_cast<std::size_t>(local.tm_mon)]).append(rest, size);
}

std::optional<RankDirectoryName> parse_rank_directory(std::string_view name) {
  RankDirectoryName parsed;
  parsed.time = name.substr(0, kTimeStampLength);
  const auto in_year = seconds_in_year(parsed.time);
  std::string_view rest = name.substr(std::min(kTimeStampLength, name.size()));
  if (!in_year || !take(rest, "-rank") || !take_number(rest, parsed.rank) || !take(rest, "-") || rest.empty())
    return std::nullopt;
  parsed.in_year = *in_year;
  parsed.id = rest;
  return parsed;
}

std::string rank_directory_name(std::string_view time, int rank, std::string_view id) {
  return std::string(time).append("-rank").append(std::to_string(rank)).append("-").append(id);
}

bool is_run_id(std::string_view id) {
  return id.size() == 8 && id.find_first_not_of("0123456789abcdef") == std::string_view::npos;
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
    if ((rest == ".csv" || rest == ".csv.zst") && parsed.first_step <= parsed.last_step) return parsed;
  }
  return std::nullopt;
}

std::string id_of_run_file(std::string_view name) {
  constexpr std::string_view kEnd = ".json";
  if (!take(name, "run-") || name.size() <= kEnd.size()) return "";
  const std::size_t id = name.size() - kEnd.size();
  return name.substr(id) == kEnd ? std::string(name.substr(0, id)) : "";
}

fs::path without_dots(const fs::path& path) {
  fs::path shorter;
  for (const auto& part : path) {
    if (part != ".") shorter /= part;
  }
  return shorter.empty() ? path : shorter;
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "runtime/output/earlier_directory.h"

#include <algorithm>
#include <array>
#include <system_error>
#include <utility>

namespace gradmon {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                      "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
constexpr std::size_t kTimeLength = std::string_view("Dec03_21-34-40").size();
constexpr std::size_t kIdLength = 8;
constexpr long kYear = 12L * 31 * 86'400;

// The number that two digits make, if it is at most `most`.
std::optional<long> two_digits(std::string_view text, long most) {
  if (text.size() != 2 || text.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  const long number = (text[0] - '0') * 10 + (text[1] - '0');
  return number <= most ? std::optional(number) : std::nullopt;
}

std::optional<long> seconds_of_directory(const std::string& name, Rank rank) {
  const std::string middle = "-rank" + std::to_string(rank.value) + "-";
  if (name.size() != kTimeLength + middle.size() + kIdLength) return std::nullopt;
  if (name.compare(kTimeLength, middle.size(), middle) != 0) return std::nullopt;
  const std::string_view id = std::string_view(name).substr(name.size() - kIdLength);
  if (id.find_first_not_of("0123456789abcdef") != std::string_view::npos) return std::nullopt;
  return seconds_of(std::string_view(name).substr(0, kTimeLength));
}

}  // namespace

std::optional<long> seconds_of(std::string_view time) {
  if (time.size() != kTimeLength || time[5] != '_' || time[8] != '-' || time[11] != '-') return std::nullopt;
  const auto* const month = std::find(kMonths.begin(), kMonths.end(), time.substr(0, 3));
  const auto day = two_digits(time.substr(3, 2), 31);
  const auto hour = two_digits(time.substr(6, 2), 23);
  const auto minute = two_digits(time.substr(9, 2), 59);
  const auto second = two_digits(time.substr(12, 2), 60);
  if (month == kMonths.end() || !day || *day == 0 || !hour || !minute || !second) return std::nullopt;
  const long days = (month - kMonths.begin()) * 31 + *day - 1;
  return ((days * 24 + *hour) * 60 + *minute) * 60 + *second;
}

tl::expected<std::optional<fs::path>, std::string> find_earlier_directory(const fs::path& output_dir,
                                                                          Rank rank, const TimeSpan& span) {
  for (const std::string* const time : {&span.first, &span.last}) {
    if (!seconds_of(*time))
      return tl::unexpected("\"" + *time + "\" is no time stamp, such as \"Dec03_21-34-40\"");
  }
  const auto after_first = [first = *seconds_of(span.first)](long time) {
    return (time - first + kYear) % kYear;
  };
  std::pair<long, fs::file_time_type> newest{-1, {}};
  std::optional<fs::path> found;
  std::error_code ignored;
  for (fs::directory_iterator entry(output_dir, ignored), end; entry != end; entry.increment(ignored)) {
    const auto time = seconds_of_directory(entry->path().filename().string(), rank);
    std::error_code error;
    if (!time || after_first(*time) > after_first(*seconds_of(span.last)) || !entry->is_directory(error))
      continue;
    const std::pair candidate{after_first(*time), entry->last_write_time(error)};
    if (candidate <= newest) continue;
    newest = candidate;
    found = entry->path();
  }
  return found;
}

}  // namespace gradmon

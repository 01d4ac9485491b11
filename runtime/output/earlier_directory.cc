// SPDX-License-Identifier: Apache-2.0
#include "runtime/output/earlier_directory.h"

#include <charconv>
#include <string_view>
#include <system_error>
#include <utility>

#include "control/text/time_stamp.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMark = "-rank";
constexpr std::size_t kIdLength = 8;

// What the name of a run directory says.
struct RunName {
  std::int64_t seconds = 0;
  std::string time;
  int rank = 0;
  std::string id;

  std::string of(Rank other) const {
    return time + std::string(kMark) + std::to_string(other.value) + "-" + id;
  }
};

std::optional<RunName> run_name_of(const std::string& name) {
  if (name.size() < kTimeStampLength + kMark.size() + 2 + kIdLength) return std::nullopt;
  const auto seconds = seconds_in_year(std::string_view(name).substr(0, kTimeStampLength));
  if (!seconds) return std::nullopt;
  RunName run{*seconds, name.substr(0, kTimeStampLength), 0, name.substr(name.size() - kIdLength)};
  if (run.id.find_first_not_of("0123456789abcdef") != std::string::npos) return std::nullopt;
  const char* const digits = name.data() + kTimeStampLength + kMark.size();
  if (std::from_chars(digits, name.data() + name.size(), run.rank).ec != std::errc()) return std::nullopt;
  if (run.rank < 0 || name != run.of(Rank{run.rank})) return std::nullopt;
  return run;
}

// The newest directory so far: time from the begin of the span on, time of the last change, name.
struct Newest {
  std::pair<std::int64_t, fs::file_time_type> age{-1, {}};
  std::optional<RunName> run;

  void add(const std::pair<std::int64_t, fs::file_time_type>& candidate, const RunName& name) {
    if (candidate <= age) return;
    age = candidate;
    run = name;
  }
};

}  // namespace

tl::expected<std::optional<EarlierDirectory>, std::string> find_earlier_directory(const fs::path& output_dir,
                                                                                  Rank rank,
                                                                                  const TimeSpan& span) {
  for (const std::string* const time : {&span.first, &span.last}) {
    if (!seconds_in_year(*time))
      return tl::unexpected("\"" + *time + "\" is no time stamp, such as \"Dec03_21-34-40\"");
  }
  const auto after_first = [first = *seconds_in_year(span.first)](std::int64_t time) {
    return (time - first + kSecondsInLeapYear) % kSecondsInLeapYear;
  };
  const std::int64_t last = after_first(*seconds_in_year(span.last));
  Newest own, of_any;
  std::error_code ignored;
  for (fs::directory_iterator entry(output_dir, ignored), end; entry != end; entry.increment(ignored)) {
    const auto run = run_name_of(entry->path().filename().string());
    std::error_code error;
    if (!run || after_first(run->seconds) > last || !entry->is_directory(error)) continue;
    const std::pair age{after_first(run->seconds), entry->last_write_time(error)};
    if (run->rank == rank.value) own.add(age, *run);
    of_any.add(age, *run);
  }
  if (!of_any.run) return std::nullopt;
  return EarlierDirectory{output_dir / (own.run ? *own.run : *of_any.run).of(rank), own.run.has_value()};
}

}  // namespace gradmon

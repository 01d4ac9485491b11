// SPDX-License-Identifier: Apache-2.0
#include "runtime/output/earlier_directory.h"

#include <system_error>
#include <utility>

#include "control/text/output_names.h"
#include "control/text/time_stamp.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

// Parses the name of a run directory of gradmon.
std::optional<RankDirectoryName> run_name_of(const std::string& name) {
  auto run = parse_rank_directory(name);
  if (!run || !is_run_id(run->id) || name != rank_directory_name(run->time, run->rank, run->id))
    return std::nullopt;
  return run;
}

// The newest directory so far: time since the begin of the span, time of the last change, name.
struct Newest {
  std::pair<std::int64_t, fs::file_time_type> age{-1, {}};
  std::optional<RankDirectoryName> run;

  void add(const std::pair<std::int64_t, fs::file_time_type>& candidate, const RankDirectoryName& name) {
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
    if (!run || after_first(run->in_year) > last || !entry->is_directory(error)) continue;
    const std::pair age{after_first(run->in_year), entry->last_write_time(error)};
    if (run->rank == rank.value) own.add(age, *run);
    of_any.add(age, *run);
  }
  if (!of_any.run) return std::nullopt;
  const RankDirectoryName& run = own.run ? *own.run : *of_any.run;
  return EarlierDirectory{output_dir / rank_directory_name(run.time, rank.value, run.id),
                          own.run.has_value()};
}

}  // namespace gradmon

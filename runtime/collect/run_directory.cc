// SPDX-License-Identifier: Apache-2.0
#include "runtime/collect/run_directory.h"

#include <algorithm>
#include <system_error>
#include <thread>

#include "control/config/file_content.h"
#include "control/files/file_access.h"
#include "control/host/child_process.h"
#include "control/log.h"
#include "control/text/output_names.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kShortenedWait{1500};
constexpr std::chrono::milliseconds kSlice{20};

// Parses the name of a run directory of gradmon.
std::optional<RankDirectoryName> parse_run_name(const std::string& name) {
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

tl::expected<fs::path, std::string> place_of(RunDirectory& directory, Rank rank,
                                             RecordStream::Document document) {
  if (document == RecordStream::Document::stack_info) {
    return directory.create() / "stack_info.csv";
  }
  const fs::path folder = directory.output_dir() / "module_struct" / ("rank" + std::to_string(rank.value));
  if (auto made = make_directories(folder); !made) return tl::unexpected(made.error());
  return folder / "module_struct.json";
}

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
    const auto run = parse_run_name(entry->path().filename().string());
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

fs::path run_directory_path(const fs::path& output_dir, Rank rank, const JobIdentity& job) {
  return output_dir / rank_directory_name(format_time_stamp(job.started / 1000), rank.value, job.run_id);
}

RunDirectory::RunDirectory(fs::path output_dir, Rank rank, std::string launch_id,
                           std::function<std::optional<JobIdentity>()> job)
    : output_dir_(std::move(output_dir)),
      rank_(rank),
      launch_id_(std::move(launch_id)),
      job_(std::move(job)),
      own_start_(wall_now()) {}

fs::path RunDirectory::fix_name_as(const fs::path& path) {
  const std::lock_guard lock(mutex_);
  if (path_.empty()) path_ = path;
  return path_;
}

void RunDirectory::fix_name() {
  if (appends()) return;
  if (const auto job = known_job()) fix_name_as(run_directory_path(output_dir_, rank_, *job));
}

void RunDirectory::append_between(TimeSpan span) {
  const std::lock_guard lock(mutex_);
  if (path_.empty()) append_ = std::move(span);
}

bool RunDirectory::appends() const {
  const std::lock_guard lock(mutex_);
  return append_.has_value();
}

std::optional<fs::path> RunDirectory::earlier_directory() const {
  std::optional<TimeSpan> span;
  {
    const std::lock_guard lock(mutex_);
    span = append_;
  }
  if (!span) return std::nullopt;
  const auto found = find_earlier_directory(output_dir_, rank_, *span);
  if (found && *found && (*found)->exists) {
    log_info("append_output: rank " + std::to_string(rank_.value) + " goes on in " + (*found)->path.string());
    return (*found)->path;
  }
  log_warn("append_output: " +
           (found ? "no directory of rank " + std::to_string(rank_.value) + " in " + output_dir_.string() +
                        " from " + span->first + " to " + span->last
                  : found.error()) +
           "; making " + (found && *found ? (*found)->path.string() : "a new one"));
  return found && *found ? std::optional((*found)->path) : std::nullopt;
}

JobIdentity RunDirectory::identity(std::chrono::milliseconds at_most) const {
  using Clock = std::chrono::steady_clock;
  auto deadline = Clock::now() + at_most;
  bool shortened = false;
  auto job = known_job();
  while (!job && Clock::now() < deadline) {
    std::this_thread::sleep_for(kSlice);
    if (progress_) progress_();
    if (!shortened && wait_shortened_) {
      shortened = true;
      deadline = std::min(deadline, Clock::now() + kShortenedWait);
    }
    job = known_job();
  }
  if (job) return *job;
  log_warn("rank 0 did not answer: output of rank " + std::to_string(rank_.value) +
           " is named after its own start time");
  return {"", sha256_hex(launch_id_).substr(0, 8), own_start_};
}

fs::path RunDirectory::choose(std::chrono::milliseconds at_most) {
  if (!path().empty()) return path();
  const auto earlier = earlier_directory();
  return fix_name_as(earlier ? *earlier : run_directory_path(output_dir_, rank_, identity(at_most)));
}

fs::path RunDirectory::create(std::chrono::milliseconds at_most) {
  choose(at_most);
  if (auto made = make_directories(path()); !made) log_error(made.error());
  return path();
}

fs::path RunDirectory::path() const {
  const std::lock_guard lock(mutex_);
  return path_;
}

tl::expected<void, std::string> write_and_rename(const fs::path& place, const std::string& text) {
  const fs::path beside = place.string() + ".new";
  if (auto written = write_durably(beside, text); !written) return written;
  std::error_code error;
  fs::rename(beside, place, error);
  if (error) return tl::unexpected(place.string() + ": " + error.message());
  return {};
}

tl::expected<void, std::string> write_document(RunDirectory& directory, Rank rank,
                                               RecordStream::Document document, const std::string& text) {
  const auto place = place_of(directory, rank, document);
  if (!place) return tl::unexpected(place.error());
  return write_and_rename(*place, text);
}

}  // namespace gradmon

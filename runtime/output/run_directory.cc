// SPDX-License-Identifier: Apache-2.0
#include "runtime/output/run_directory.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "control/config/file_content.h"
#include "control/files/make_directories.h"
#include "control/host/process_identity.h"
#include "control/log.h"
#include "control/text/output_names.h"
#include "control/text/time_stamp.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kShortenedWait{1500};
constexpr std::chrono::milliseconds kSlice{20};

}  // namespace

fs::path run_directory_of(const fs::path& output_dir, Rank rank, const JobIdentity& job) {
  return output_dir / rank_directory_name(time_stamp_of(job.started / 1000), rank.value, job.run_id);
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
  if (const auto job = known_job()) fix_name_as(run_directory_of(output_dir_, rank_, *job));
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
  return {"", sha256_of(launch_id_).substr(0, 8), own_start_};
}

fs::path RunDirectory::choose(std::chrono::milliseconds at_most) {
  if (!path().empty()) return path();
  const auto earlier = earlier_directory();
  return fix_name_as(earlier ? *earlier : run_directory_of(output_dir_, rank_, identity(at_most)));
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

}  // namespace gradmon

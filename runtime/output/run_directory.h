// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "control/link/agent_options.h"
#include "runtime/output/earlier_directory.h"

namespace gradmon {

// $OUT/{MonDD_HH-MM-SS}-rank{R}-{8 hex}. The time (local) and the hex digits are the job's, so they
// are the same on all ranks.
std::filesystem::path run_directory_of(const std::filesystem::path& output_dir, Rank rank,
                                       const JobIdentity& job);

// The directory of this rank in this run. Its name is fixed once the job's identity is known. Any
// thread.
class RunDirectory {
 public:
  static constexpr std::chrono::milliseconds kIdentityWithin{5000};

  // `job` returns the job's identity, nullopt while it is unknown. It must own the data it reads: an
  // abandoned writer thread calls it after the agent has ended. Null: unknown until set_job_source(). If the
  // identity stays unknown, the run is named after `launch_id`, which may be another name of the launch.
  RunDirectory(std::filesystem::path output_dir, Rank rank, std::string launch_id,
               std::function<std::optional<JobIdentity>()> job);

  // Sets `job`. Call it before any other thread uses this object.
  void set_job_source(std::function<std::optional<JobIdentity>()> job) { job_ = std::move(job); }

  // Sets a function that identity() calls while it waits, see WriterThread::progress(): the wait has its own
  // limit. Call it before any thread calls identity() or create().
  void report_progress(std::function<bool()> progress) { progress_ = std::move(progress); }

  // Lets create() choose an earlier job's directory that was begun in that span; without one, create() logs a
  // warning and makes a directory (named by find_earlier_directory()). Does nothing once the name is fixed.
  void append_between(TimeSpan span);
  // True if append_between() was called in time.
  bool appends() const;
  // Fixes the name if the job's identity is known. Creates nothing. After append_between() it does nothing:
  // only create() may look for a directory.
  void fix_name();
  // Waits up to `at_most` for the job's identity. After that returns an identity made of the launch id and
  // this process's start time, and logs a warning. Not on the training thread.
  JobIdentity identity(std::chrono::milliseconds at_most = kIdentityWithin) const;
  // Fixes the name, by identity() unless append_between() was called. Not on the training thread: the disk
  // may hang.
  std::filesystem::path choose(std::chrono::milliseconds at_most = kIdentityWithin);
  // choose(), and creates the directory (0750). An error is logged.
  std::filesystem::path create(std::chrono::milliseconds at_most = kIdentityWithin);
  // The process is about to end: limits a wait for the identity to 1.5 s from now.
  void shorten_wait() { wait_shortened_ = true; }
  const std::filesystem::path& output_dir() const { return output_dir_; }
  // The job's epoch; "" while it is unknown.
  std::string epoch() const {
    const auto job = known_job();
    return job ? job->epoch : "";
  }
  // Empty until the name is fixed.
  std::filesystem::path path() const;

 private:
  std::optional<JobIdentity> known_job() const { return job_ ? job_() : std::nullopt; }
  std::filesystem::path fix_name_as(const std::filesystem::path& path);
  std::optional<std::filesystem::path> earlier_directory() const;

  const std::filesystem::path output_dir_;
  const Rank rank_;
  const std::string launch_id_;
  std::function<std::optional<JobIdentity>()> job_;
  std::function<bool()> progress_;
  const WallTime own_start_;

  std::atomic<bool> wait_shortened_{false};
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::filesystem::path path_;
  std::optional<TimeSpan> append_;
};

}  // namespace gradmon

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

namespace gradmon {

// $OUT/{MonDD_HH-MM-SS}-rank{R}-{8 hex}: the time (local) and the hex digits
// are the job's, so that they are the same on all ranks.
std::filesystem::path run_directory_of(const std::filesystem::path& output_dir, Rank rank,
                                       const JobIdentity& job);

// The directory of this rank and start, once it is known. Any thread.
class RunDirectory {
 public:
  static constexpr std::chrono::milliseconds kIdentityWithin{5000};

  // `job` asks the agent, of which it must own what it reads: a writer thread that was
  // left behind outlives the agent. Null: nothing is known before ask(). `launch_id`
  // names the run where nobody answers.
  RunDirectory(std::filesystem::path output_dir, Rank rank, std::string launch_id,
               std::function<std::optional<JobIdentity>()> job);

  // Before any other thread uses it.
  void ask(std::function<std::optional<JobIdentity>()> job) { job_ = std::move(job); }

  // Settles its name where the job's identity is known; makes nothing.
  void settle();
  // Waits up to `at_most` for the job's identity, and falls back to this process's own
  // start time, with a word in the log. Not the training thread.
  JobIdentity identity(std::chrono::milliseconds at_most = kIdentityWithin) const;
  // Makes it (0750) and settles its name as of identity(). Not the training
  // thread: the disk may hang.
  std::filesystem::path make(std::chrono::milliseconds at_most = kIdentityWithin);
  // The process is about to end: nobody waits for the identity much longer.
  void shorten_wait() { wait_shortened_ = true; }
  const std::filesystem::path& output_dir() const { return output_dir_; }
  // Of the job; "" while it is not known.
  std::string epoch() const {
    const auto job = known_job();
    return job ? job->epoch : "";
  }
  // Empty while its name is not settled.
  std::filesystem::path path() const;

 private:
  std::optional<JobIdentity> known_job() const { return job_ ? job_() : std::nullopt; }
  std::filesystem::path settle_as(const JobIdentity& job);

  const std::filesystem::path output_dir_;
  const Rank rank_;
  const std::string launch_id_;
  std::function<std::optional<JobIdentity>()> job_;
  const WallTime own_start_;

  std::atomic<bool> wait_shortened_{false};
  mutable std::mutex mutex_;
  std::filesystem::path path_;  // guarded by mutex_
};

}  // namespace gradmon

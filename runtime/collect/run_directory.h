// SPDX-License-Identifier: Apache-2.0
// The directory of a rank in a run, an earlier job's directory for `append_output`, and the output files that
// no sink writes, such as module_struct.json, stack_info.csv and run-{id}.json.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "control/link/agent.h"
#include "control/step.h"
#include "hooks/rows/record_stream.h"

namespace gradmon {

// --- The run directory of an earlier job, for `append_output` ---

// The times, as in names of run directories ("Dec03_21-34-40"), between which the directory was begun; both
// belong to the span. The times have no year: a span whose end sorts before its begin goes over the new year.
struct TimeSpan {
  std::string first;
  std::string last;
};

struct EarlierDirectory {
  std::filesystem::path path;
  bool exists = false;
};

// The newest directory `{time}-rank{R}-{8 hex}` of that rank in the span. If the rank has none in the span:
// the directory that it would have in the newest run of any rank, so that a reader sees all ranks of the
// restarted job as one run. nullopt if no rank has one. If several have the same time, the one changed last.
// The error names the defect of the span. Not on the training thread: reads the directory.
tl::expected<std::optional<EarlierDirectory>, std::string> find_earlier_directory(
    const std::filesystem::path& output_dir, Rank rank, const TimeSpan& span);

// $OUT/{MonDD_HH-MM-SS}-rank{R}-{8 hex}. The time (local) and the hex digits are the job's, so they
// are the same on all ranks.
std::filesystem::path run_directory_path(const std::filesystem::path& output_dir, Rank rank,
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

// Writes `{place}.new` (0640) and renames it to `place`. The directory must exist.
tl::expected<void, std::string> write_and_rename(const std::filesystem::path& place, const std::string& text);

// Writes a document to its place (FORMAT.md), like write_and_rename(). Writer thread: may wait for the job's
// identity, see RunDirectory::create().
tl::expected<void, std::string> write_document(RunDirectory& directory, Rank rank,
                                               RecordStream::Document document, const std::string& text);

// Numbers the writes of one file; each write replaces the whole file. If the writer thread retries a failed
// write after a later one has succeeded, the earlier one does nothing.
class ReplacingWrites {
 public:
  using Write = std::function<tl::expected<void, std::string>()>;

  // Training thread. For WriterThread::write_file().
  Write next(Write write) {
    return [number = ++last_, written = written_,
            write = std::move(write)]() -> tl::expected<void, std::string> {
      if (number < *written) return {};
      auto result = write();
      if (result) *written = number;
      return result;
    };
  }

 private:
  std::uint64_t last_ = 0;
  // The number of the newest write that has succeeded. Writer thread only.
  const std::shared_ptr<std::uint64_t> written_ = std::make_shared<std::uint64_t>(0);
};

}  // namespace gradmon

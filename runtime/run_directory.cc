// SPDX-License-Identifier: Apache-2.0
#include "runtime/run_directory.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <thread>
#include <utility>

#include "control/config/file_content.h"
#include "control/host/private_directory.h"
#include "control/host/process_identity.h"
#include "control/log.h"
#include "writers/csv_sink.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kIdentityWithin{5000};
constexpr std::chrono::milliseconds kIdentityInHurry{1500};
constexpr std::chrono::milliseconds kSlice{20};

// Writes nothing, and makes nothing, until there are rows.
class LateCsvSink : public Sink {
 public:
  LateCsvSink(std::shared_ptr<RunDirectory> directory, std::shared_ptr<const NameTable> names)
      : directory_(std::move(directory)), names_(std::move(names)) {}

  const char* name() const override { return "csv"; }
  void report_parts(OnPart on_part) override { on_part_ = std::move(on_part); }
  tl::expected<void, SinkError> begin_revision(const Layout& layout) override {
    layout_ = layout;
    return {};
  }
  tl::expected<void, SinkError> write_step(Step step, const std::vector<Record>& records) override {
    if (!sink_) {
      sink_ = std::make_unique<CsvSink>(directory_->make(kIdentityWithin), names_);
      sink_->report_parts(on_part_);
      if (auto begun = sink_->begin_revision(layout_); !begun) return begun;
    }
    return sink_->write_step(step, records);
  }
  tl::expected<void, SinkError> flush() override {
    return sink_ ? sink_->flush() : tl::expected<void, SinkError>{};
  }

 private:
  const std::shared_ptr<RunDirectory> directory_;
  const std::shared_ptr<const NameTable> names_;
  OnPart on_part_;
  Layout layout_;
  std::unique_ptr<CsvSink> sink_;
};

}  // namespace

fs::path run_directory_of(const fs::path& output_dir, Rank rank, const JobIdentity& job) {
  const std::time_t seconds = job.started / 1000;
  std::tm local{};
  localtime_r(&seconds, &local);
  // Not strftime's %b, which follows the locale.
  constexpr const char* months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                    "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  char time[32];
  std::strftime(time, sizeof time, "%d_%H-%M-%S", &local);
  return output_dir /
         (std::string(months[local.tm_mon]) + time + "-rank" + std::to_string(rank.value) + "-" + job.run_id);
}

RunDirectory::RunDirectory(fs::path output_dir, Rank rank, std::string launch_id,
                           std::function<std::optional<JobIdentity>()> job)
    : output_dir_(std::move(output_dir)),
      rank_(rank),
      launch_id_(std::move(launch_id)),
      job_(std::move(job)),
      own_start_(wall_now()) {}

fs::path RunDirectory::settle_as(const JobIdentity& job) {
  const std::lock_guard lock(mutex_);
  if (path_.empty()) path_ = run_directory_of(output_dir_, rank_, job);
  return path_;
}

void RunDirectory::settle() {
  if (const auto job = known_job()) settle_as(*job);
}

JobIdentity RunDirectory::identity(std::chrono::milliseconds at_most) const {
  using Clock = std::chrono::steady_clock;
  auto deadline = Clock::now() + at_most;
  bool hurries = false;
  auto job = known_job();
  while (!job && Clock::now() < deadline) {
    std::this_thread::sleep_for(kSlice);
    if (!hurries && hurried_) {
      hurries = true;
      deadline = std::min(deadline, Clock::now() + kIdentityInHurry);
    }
    job = known_job();
  }
  if (job) return *job;
  log_warn("rank 0 did not answer: output of rank " + std::to_string(rank_.value) +
           " is named after its own start time and its launch");
  return {"", sha256_of(launch_id_).substr(0, 8), own_start_};
}

fs::path RunDirectory::make(std::chrono::milliseconds at_most) {
  if (path().empty()) settle_as(identity(at_most));
  if (auto made = make_private_directory(path()); !made) log_error(made.error());
  return path();
}

fs::path RunDirectory::path() const {
  const std::lock_guard lock(mutex_);
  return path_;
}

std::unique_ptr<Sink> make_csv_sink(std::shared_ptr<RunDirectory> directory,
                                    std::shared_ptr<const NameTable> names) {
  return std::make_unique<LateCsvSink>(std::move(directory), std::move(names));
}

}  // namespace gradmon

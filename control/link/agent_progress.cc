// SPDX-License-Identifier: Apache-2.0
// AgentLoop: Progress reports to the coordinator, and the status for the program.
#include <unistd.h>

#include <exception>
#include <utility>

#include "control/host/boot_clock.h"
#include "control/host/process_identity.h"
#include "control/link/agent_loop.h"
#include "control/log.h"

namespace gradmon {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kProgressEvery{1000};
constexpr milliseconds kProgressEveryWhileOpen{500};
constexpr milliseconds kShowEvery{100};
constexpr milliseconds kMeasureOver{500};
constexpr milliseconds kStateIsFresh{3000};
constexpr std::size_t kMostWarnings = 50;

}  // namespace

void AgentLoop::report_progress(Clock::time_point now) {
  const auto pace = member_.busy() ? kProgressEveryWhileOpen : kProgressEvery;
  const bool due = now.time_since_epoch() / pace != last_progress_.time_since_epoch() / pace;
  if (!due && now - last_show_ < kShowEvery) return;
  last_show_ = now;
  if (now - last_measured_ >= kMeasureOver) {
    const Step step = gate_.current();
    const double ms = std::chrono::duration<double, std::milli>(now - last_measured_).count();
    if (const std::int64_t steps = step - last_step_; steps > 0) step_ms_ = ms / static_cast<double>(steps);
    last_step_ = step;
    last_measured_ = now;
  }
  CollectingReport report = calls_.report();
  if (due && member_.joined() && !leave_by_) {
    last_progress_ = now;
    tell_progress(report);
  }
  const bool hears_state = heard_state_ && now - *heard_state_ < kStateIsFresh && member_.joined();
  if (!hears_state) publish_own(report);
}

void AgentLoop::tell_progress(const CollectingReport& report) {
  Progress progress = member_.progress(boot_now());
  progress.step_ms = step_ms_;
  progress.records = report.records;
  progress.dropped = report.dropped;
  progress.error = report.error.substr(0, 1000);
  progress.overhead = report.overhead;
  progress.targets = report.targets;
  progress.skipped = report.skipped;
  if (options_.rank.value == 0) {
    progress.warnings = report.warnings;
    if (progress.warnings.size() > kMostWarnings) progress.warnings.resize(kMostWarnings);
  }
  to_coordinator(member_.report(std::move(progress), boot_now()));
}

void AgentLoop::publish_stopped() noexcept {
  try {
    const CollectingReport report = calls_.report();
    Status status = view_.status();
    status.state = "off";
    status.reason = "stopped";
    status.pending.reset();
    for (RankStatus& rank : status.ranks) {
      if (rank.rank != options_.rank) continue;
      rank.records = report.records;
      rank.dropped = report.dropped;
      if (!report.error.empty()) rank.error = report.error;
    }
    view_.show(std::move(status));
  } catch (const std::exception& error) {
    log_warn(std::string("status() may be out of date: ") + error.what());
  }
}

void AgentLoop::publish_own(const CollectingReport& report) { view_.show(own_status(report)); }

Status AgentLoop::own_status(const CollectingReport& report) const {
  Status status;
  status.epoch = epoch_;
  status.launch_id = launch_id_;
  status.output_dir = options_.output_dir.string();
  status.mode = options_.mode == Mode::dynamic ? "dynamic" : "static";
  status.warnings = report.warnings;
  status.reason = member_.replaced() ? "another process has taken this rank" : member_.refused();
  if (status.reason.empty() && hub_) status.reason = hub_->connected() ? lead_trouble_ : hub_->trouble();
  RankStatus own;
  own.rank = options_.rank;
  own.host = host_name();
  own.pid = getpid();
  const Progress progress = member_.progress(boot_now());
  own.step = progress.step.value;
  own.step_ms = step_ms_;
  own.records = report.records;
  own.dropped = report.dropped;
  own.error = report.error;
  own.overhead = report.overhead;
  own.targets = report.targets;
  own.accepted = progress.closed;
  own.waited_ms = progress.waited_ms;
  own.state = progress.waiting ? "waiting" : progress.collecting ? "collecting" : "idle";
  if (const auto in_force = gate_.in_force()) {
    const Schedule schedule = schedule_of(*in_force->plan, in_force->effective);
    status.state = progress.collecting ? "on" : "off";
    status.revision = own.revision = in_force->revision;
    status.effective_step = own.applied_step = in_force->effective.value;
    status.collected = schedule.collected_before(progress.step);
    status.collect_times = schedule.times();
    status.step_interval = schedule.interval();
    status.config_sha256 = in_force->plan->config_sha256;
  }
  status.ranks.push_back(std::move(own));
  return status;
}

}  // namespace gradmon

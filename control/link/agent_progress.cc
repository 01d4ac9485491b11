// SPDX-License-Identifier: Apache-2.0
// AgentLoop: Progress reports to the coordinator, and the status for the program.
#include <unistd.h>

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
constexpr milliseconds kPublishEvery{100};
constexpr milliseconds kJobStatusMaxAge{3000};
constexpr std::size_t kMostWarnings = 50;

}  // namespace

void AgentLoop::report_progress(Clock::time_point now) {
  const auto pace = member_.busy() ? kProgressEveryWhileOpen : kProgressEvery;
  const bool due = now.time_since_epoch() / pace != last_progress_.time_since_epoch() / pace;
  if (!due && now - last_publish_ < kPublishEvery) return;
  last_publish_ = now;
  pace_.look(gate_.current(), now);
  CollectingReport report = calls_.report();
  if (due && member_.joined() && !leave_by_) {
    last_progress_ = now;
    tell_progress(report);
  }
  const bool has_job_status = job_status_at_ && now - *job_status_at_ < kJobStatusMaxAge && member_.joined();
  if (!has_job_status) view_.publish(own_status(report));
}

void AgentLoop::tell_progress(const CollectingReport& report) {
  Progress progress = member_.progress(boot_now());
  progress.step_ms = pace_.step_ms();
  progress.records = report.records;
  progress.dropped = report.dropped;
  progress.error = report.error.substr(0, 1000);
  progress.overhead = report.overhead;
  progress.targets = report.targets;
  progress.skipped = report.skipped;
  progress.alerts = alerts_->raised();
  progress.flight_written = report.flight_written;
  progress.flight_lost = report.flight_lost;
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
      rank.flight_written = report.flight_written;
      rank.flight_lost = report.flight_lost;
      if (!report.error.empty()) rank.error = report.error;
    }
    view_.publish(std::move(status));
  } catch (...) {
    log_warn("status() may be out of date: the last counts could not be read");
  }
}

Status AgentLoop::own_status(const CollectingReport& report) const {
  Status status;
  status.epoch = epoch_;
  status.launch_id = launch_id_;
  status.output_dir = options_.output_dir.string();
  status.mode = options_.mode == Mode::dynamic ? "dynamic" : "static";
  status.warnings = report.warnings;
  status.reason = member_.replaced() ? "another process has joined as this rank" : member_.refused();
  if (status.reason.empty() && hub_) status.reason = hub_->connected() ? lead_error_ : hub_->trouble();
  RankStatus own;
  own.rank = options_.rank;
  own.host = host_name();
  own.pid = getpid();
  const Progress progress = member_.progress(boot_now());
  own.step = progress.step.value;
  own.step_ms = pace_.step_ms();
  own.records = report.records;
  own.dropped = report.dropped;
  own.error = report.error;
  own.overhead = report.overhead;
  own.targets = report.targets;
  own.alerts = alerts_->raised();
  own.flight_written = report.flight_written;
  own.flight_lost = report.flight_lost;
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

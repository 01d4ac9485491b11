// SPDX-License-Identifier: Apache-2.0
// AgentLoop: what it tells of this rank, to rank 0 and to those who ask.
#include <unistd.h>

#include <utility>

#include "control/net/agent_loop.h"
#include "control/net/messages.h"
#include "control/net/process_identity.h"

namespace gradmon {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kProgressEvery{1000};
constexpr milliseconds kShowEvery{100};
constexpr milliseconds kMeasureOver{500};

}  // namespace

void AgentLoop::report_progress(Clock::time_point now) {
  const bool due = now - last_progress_ >= kProgressEvery;
  if (!due && now - last_show_ < kShowEvery) return;
  last_show_ = now;
  Progress progress = member_.progress();
  if (due) last_progress_ = now;
  if (now - last_measured_ >= kMeasureOver) {
    const std::int64_t steps = progress.step - last_step_;
    const double ms = std::chrono::duration<double, std::milli>(now - last_measured_).count();
    if (steps > 0) step_ms_ = ms / static_cast<double>(steps);
    last_step_ = progress.step;
    last_measured_ = now;
  }
  const CollectingReport report = calls_.report();
  progress.step_ms = step_ms_;
  progress.records = report.records;
  progress.dropped = report.dropped;
  progress.error = report.error.substr(0, 1000);
  progress.overhead = report.overhead;
  progress.targets = report.targets;
  progress.skipped = report.skipped;
  // Rank 0 is always up to date in its own status; the others say it once a second.
  if (member_.joined() && (due || options_.rank.value == 0)) to_coordinator(std::move(progress));
  show_status(report, due);
}

void AgentLoop::show_status(const CollectingReport& report, bool broadcast) {
  Status status;
  if (rank0_) {
    status = rank0_->status();
    if (!network_trouble_.empty() && status.warnings.empty()) status.warnings.push_back(network_trouble_);
    if (broadcast && bus_) bus_->broadcast(encode(Frame(status)));
  } else {
    status = own_status(report);
  }
  view_.show(std::move(status));
}

Status AgentLoop::own_status(const CollectingReport& report) const {
  Status status;
  status.epoch = job_.epoch;
  status.mode = options_.mode == Mode::dynamic ? "dynamic" : "static";
  status.warnings = report.warnings;
  if (const std::string line = dropped_.warning(); !line.empty()) status.warnings.push_back(line);
  status.reason = member_.replaced() ? "another process has taken this rank" : member_.refused();
  RankStatus own;
  own.rank = options_.rank;
  own.host = host_name();
  own.pid = getpid();
  const Progress progress = member_.progress();
  own.step = progress.step.value;
  own.step_ms = step_ms_;
  own.records = report.records;
  own.dropped = report.dropped;
  own.error = report.error;
  own.overhead = report.overhead;
  own.targets = report.targets;
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

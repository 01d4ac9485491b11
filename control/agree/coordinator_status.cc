// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "control/agree/coordinator.h"

namespace gradmon {
namespace {

constexpr Ticks kStalled{5'000};

const char* state_of(const Roster::Seat& seat) {
  if (seat.state == Roster::State::absent) return "absent";
  if (seat.left()) return "left";
  if (seat.progress.missed > seat.progress.applied) return "missed";
  if (seat.progress.waiting) return "waiting";
  return seat.progress.collecting ? "collecting" : "idle";
}

// "" unless scalers have left out a different number of updates on two neighbours. A
// rank that has not yet told of the step of the other's last one is not compared.
std::string skip_warning(const Roster& roster) {
  const auto on_rank = [](int rank, const Progress& progress) {
    return std::to_string(progress.skipped.count) + " on rank " + std::to_string(rank);
  };
  for (int rank = 1; rank < roster.size(); ++rank) {
    const Progress& one = roster.seat(rank - 1).progress;
    const Progress& other = roster.seat(rank).progress;
    const bool comparable = one.skipped.last < other.step && other.skipped.last < one.step;
    if (!comparable || one.skipped.count == other.skipped.count) continue;
    return "updates that GradScaler has left out: " + on_rank(rank - 1, one) + ", " + on_rank(rank, other) +
           ": their parameters differ";
  }
  return "";
}

std::string revision_text(Revision revision) { return "revision " + std::to_string(revision.value); }

}  // namespace

std::optional<Pending> Coordinator::pending() const {
  if (open_) {
    for (int rank = 0; rank < roster_.size(); ++rank) {
      const Roster::Seat& seat = roster_.seat(rank);
      if (!seat.left() && !seat.ready && !seat.reject) {
        return Pending{open_->revision, "waiting for the answer of rank " + std::to_string(rank),
                       open_->proposal.since};
      }
    }
    return Pending{open_->revision, "being written to the register", open_->proposal.since};
  }
  if (waiting_) {
    const std::string unready = roster_.unready();
    return Pending{{}, unready.empty() ? "to be proposed again" : unready, waiting_->since};
  }
  if (committed_.newest() == nullptr) return {};
  const CommittedPlans::One& newest = *committed_.newest();
  if (applied_by_all(newest.verdict.revision)) return {};
  for (int rank = 0; rank < roster_.size(); ++rank) {
    const Roster::Seat& seat = roster_.seat(rank);
    if (seat.has_applied(newest.verdict.revision)) continue;
    const Ticks stalled = clock_ - seat.last_moved;
    const std::string why = stalled >= kStalled
                                ? "rank " + std::to_string(rank) + " has not stepped for " +
                                      std::to_string(stalled.count() / 1000) + " s"
                                : "takes effect at step " + std::to_string(newest.verdict.effective.value);
    return Pending{newest.verdict.revision, why, 0};
  }
  return {};
}

std::vector<RankStatus> Coordinator::describe_ranks() const {
  std::vector<RankStatus> ranks;
  for (int rank = 0; rank < roster_.size(); ++rank) {
    const Roster::Seat& seat = roster_.seat(rank);
    RankStatus status;
    status.rank = Rank{rank};
    status.state = state_of(seat);
    status.error = seat.trouble;
    if (seat.state != Roster::State::absent) {
      status.host = seat.hello.host;
      status.pid = seat.hello.pid;
      status.step = seat.progress.step.value;
      status.revision = seat.progress.applied;
      if (seat.progress.applied != Revision{}) status.applied_step = seat.progress.applied_step.value;
      status.step_ms = seat.progress.step_ms;
      status.last_seen_ms = (clock_ - seat.last_seen).count();
      status.last_stepped_ms = (clock_ - seat.last_moved).count();
      status.records = seat.progress.records;
      status.dropped = seat.progress.dropped;
      status.overhead = seat.progress.overhead;
      status.targets = seat.progress.targets;
      if (!seat.progress.error.empty()) status.error = seat.progress.error;
    }
    ranks.push_back(std::move(status));
  }
  return ranks;
}

Status Coordinator::status() const {
  Status status;
  status.epoch = job_.epoch;
  status.register_home = name_of(last_.home);
  status.ranks = describe_ranks();
  status.pending = pending();
  if (std::string warning = skip_warning(roster_); !warning.empty())
    status.warnings.push_back(std::move(warning));
  const CommittedPlans::One* running = committed_.find(roster_.seat(0).progress.applied);
  if (running == nullptr) {
    status.reason = refusal_.empty() ? "not asked for" : refusal_;
    return status;
  }
  const Plan& plan = *running->verdict.plan;
  const Step step = roster_.seat(0).progress.step;
  status.revision = running->verdict.revision;
  status.effective_step = running->verdict.effective.value;
  status.config_sha256 = plan.config_sha256;
  status.collected = running->schedule.collected_before(step);
  status.collect_times = running->schedule.times();
  status.step_interval = plan.step_interval;
  const bool ended = step >= running->schedule.end();
  status.state = plan.on && !ended ? "on" : "off";
  if (!refusal_.empty()) {
    status.reason = refusal_;
  } else if (!plan.on) {
    status.reason = "turned off by " + plan.by + " (" + revision_text(status.revision) + ")";
  } else if (ended) {
    status.reason = "finished";
  } else if (plan.cause == Cause::budget) {
    status.reason = "set by " + plan.by;
  } else if (step < running->schedule.first()) {
    status.reason = "collecting begins at step " + std::to_string(running->schedule.first().value);
  }
  return status;
}

}  // namespace gradmon

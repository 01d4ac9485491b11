// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include "control/agree/coordinator.h"

namespace gradmon {
namespace {

constexpr Ticks kStalled{5'000};
constexpr Ticks kUnended{60'000};

const char* state_name(const Membership::Member& member) {
  if (member.phase == Membership::Phase::absent) return "absent";
  if (member.left()) return "left";
  if (member.gone()) return "dropped";
  if (member.progress.waiting) return "waiting";
  return member.progress.collecting ? "collecting" : "idle";
}

// A warning if GradScalers have skipped a different number of updates on two neighbouring ranks, else "".
// Two ranks are compared only if each has reported a step after the other's last skipped update.
std::string skip_warning(const Membership& members) {
  for (int rank = 1; rank < members.size(); ++rank) {
    const Progress& one = members.of(rank - 1).progress;
    const Progress& other = members.of(rank).progress;
    const bool comparable = one.skipped.last < other.step && other.skipped.last < one.step;
    if (!comparable || one.skipped.count == other.skipped.count) continue;
    return "GradScaler skipped " + std::to_string(one.skipped.count) + " updates on rank " +
           std::to_string(rank - 1) + " and " + std::to_string(other.skipped.count) + " on rank " +
           std::to_string(rank) + ": their parameters differ";
  }
  return "";
}

bool any_absent(const Membership& members) {
  return std::any_of(members.begin(), members.end(),
                     [](const Membership::Member& each) { return each.phase == Membership::Phase::absent; });
}

// The ranks that take part and have not reached step `end`.
std::vector<int> not_at_the_end(const Membership& members, Step end) {
  std::vector<int> ranks;
  for (int rank = 0; rank < members.size(); ++rank) {
    if (members.of(rank).takes_part() && members.of(rank).progress.step < end) ranks.push_back(rank);
  }
  return ranks;
}

std::string revision_text(Revision revision) { return "revision " + std::to_string(revision.value); }

}  // namespace

// "rank 2", or "rank 2 (not heard for 8 s)" if the rank is silent.
std::string Coordinator::awaited(int rank) const {
  const RankMember& member = members_.of(rank);
  std::string text = "rank " + std::to_string(rank);
  if (!members_.heard(member, clock_))
    text += " (not heard for " + std::to_string((clock_ - member.last_heard).count() / 1000) + " s)";
  return text;
}

std::optional<Pending> Coordinator::pending() const {
  if (open_) {
    std::vector<int> awaited_ranks;
    for (int rank = 0; rank < members_.size(); ++rank) {
      if (!answered(members_.of(rank))) awaited_ranks.push_back(rank);
    }
    std::string reason = "being decided";
    if (awaited_ranks.size() == 1) reason = "waiting for the answer of " + awaited(awaited_ranks.front());
    if (awaited_ranks.size() > 1) reason = "waiting for the answers of " + names_of_ranks(awaited_ranks);
    return Pending{open_->revision, reason, open_->proposal.since};
  }
  if (waiting_) {
    const std::string obstacle = waiting_->plan->on ? why_not_ready() : "";
    const std::string& why = waiting_->last_abort;
    const std::string retry = "waiting to be retried" + (why.empty() ? "" : ": " + why);
    return Pending{{}, obstacle.empty() ? retry : obstacle, waiting_->since};
  }
  if (committed_.newest() == nullptr) return {};
  const CommittedPlan& newest = *committed_.newest();
  for (int rank = 0; rank < members_.size(); ++rank) {
    const RankMember& member = members_.of(rank);
    if (member.phase == Membership::Phase::absent || member.has_applied(newest.verdict.revision)) continue;
    const Ticks stalled = clock_ - member.last_moved;
    const std::string seconds = std::to_string(stalled.count() / 1000) + " s";
    const std::string name = "rank " + std::to_string(rank);
    const std::string why =
        stalled >= kUnended ? name + ": no step has ended for " + seconds +
                                  "; if training runs, its step is captured: call monitor.step()"
        : stalled >= kStalled ? name + " has not stepped for " + seconds
                              : "takes effect at step " + std::to_string(newest.verdict.effective.value);
    return Pending{newest.verdict.revision, why, 0};
  }
  return {};
}

std::vector<RankStatus> Coordinator::describe_ranks() const {
  std::vector<RankStatus> ranks;
  for (int rank = 0; rank < members_.size(); ++rank) {
    const RankMember& member = members_.of(rank);
    RankStatus status;
    status.rank = Rank{rank};
    status.state = state_name(member);
    if (member.phase != Membership::Phase::absent) {
      static_cast<RankReport&>(status) = member.progress;
      status.host = member.hello.host;
      status.pid = member.hello.pid;
      status.step = member.progress.step.value;
      status.revision = member.progress.applied;
      if (member.progress.applied != Revision{}) status.applied_step = member.progress.applied_step.value;
      status.last_seen_ms = (clock_ - member.last_heard).count();
      status.accepted = member.progress.closed;
      status.last_stepped_ms = (clock_ - member.last_moved).count();
    }
    if (status.error.empty()) status.error = member.gone() ? member.departure_reason : member.admission_error;
    ranks.push_back(std::move(status));
  }
  return ranks;
}

Status Coordinator::status() const {
  Status status;
  status.epoch = job_.epoch;
  status.launch_id = job_.launch_id;
  status.started = job_.started;
  status.ranks = describe_ranks();
  status.pending = pending();
  if (std::string warning = skip_warning(members_); !warning.empty())
    status.warnings.push_back(std::move(warning));
  const CommittedPlan* running = committed_.find(in_force_);
  if (running == nullptr) {
    status.reason = refusal_.empty() ? "never turned on" : refusal_;
    // Nothing can be switched on until all ranks have joined. Says so before the user asks.
    if (refusal_.empty() && !status.pending && any_absent(members_)) status.reason = why_not_ready();
    return status;
  }
  const Plan& plan = *running->verdict.plan;
  const Step step = members_.status_member().progress.step;
  status.revision = running->verdict.revision;
  status.effective_step = running->verdict.effective.value;
  status.config_sha256 = plan.config_sha256;
  status.collected = running->schedule.collected_before(step);
  status.collect_times = running->schedule.times();
  status.step_interval = plan.step_interval;
  const std::vector<int> collecting = not_at_the_end(members_, running->schedule.end());
  const bool ended = collecting.empty();
  status.state = plan.on && !ended ? "on" : "off";
  if (!refusal_.empty()) {
    status.reason = refusal_;
  } else if (!plan.on) {
    status.reason = "turned off by " + plan.by + " (" + revision_text(status.revision) + ")";
  } else if (ended) {
    status.reason = "finished";
  } else if (step >= running->schedule.end()) {
    status.reason = "waiting for " + names_of_ranks(collecting) + " to finish";
  } else if (plan.returns_to) {
    status.reason = "capturing after " + plan.by;
  } else if (plan.cause == Cause::budget) {
    status.reason = "set by " + plan.by;
  } else if (step < running->schedule.first()) {
    status.reason = "collecting begins at step " + std::to_string(running->schedule.first().value);
  }
  return status;
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "control/agree/committed_plans.h"

#include <algorithm>
#include <utility>

namespace gradmon {
namespace {

constexpr Ticks kFinishTimeout{10'000};

}  // namespace

void CommittedPlans::add(const Verdict& commit) {
  plans_.push_back({commit, schedule_of(*commit.plan, commit.effective), false});
  ended_ = written_back_ = false;
  passed_.reset();
}

bool CommittedPlans::announce(Revision revision) {
  for (CommittedPlan& each : plans_) {
    if (each.verdict.revision == revision) return !std::exchange(each.announced, true);
  }
  return false;
}

void CommittedPlans::forget_before(Revision revision) {
  plans_.erase(std::remove_if(plans_.begin(), plans_.end(),
                              [&](const CommittedPlan& each) { return each.verdict.revision < revision; }),
               plans_.end());
}

const CommittedPlan* CommittedPlans::find(Revision revision) const {
  for (const CommittedPlan& each : plans_) {
    if (each.verdict.revision == revision) return &each;
  }
  return nullptr;
}

const CommittedPlan* CommittedPlans::newest() const { return plans_.empty() ? nullptr : &plans_.back(); }

std::optional<CommittedPlans::End> CommittedPlans::check_ended(const Membership& members, Ticks now) {
  if (plans_.empty() || ended_) return {};
  const CommittedPlan& newest = plans_.back();
  const Step end = newest.schedule.end();
  // A plan that the budget turned off also ends. It has no rows, so `applied` stands for `finished`.
  const bool on = newest.verdict.plan->on;
  const bool by_itself = newest.verdict.plan->continues.has_value();
  if ((!on && !by_itself) || end == kNever) return {};
  const Revision revision = newest.verdict.revision;
  std::vector<int> silent;
  bool passed = true;
  bool reached = false;
  for (int rank = 0; rank < members.size(); ++rank) {
    const Membership::Member& member = members.of(rank);
    reached = reached || (member.left() ? member.last_step + 1 : member.progress.step) >= end;
    if (on ? member.has_finished(revision) : member.has_applied(revision)) continue;
    silent.push_back(rank);
    const bool steps = now - member.last_moved < kFinishTimeout;
    if (steps && member.progress.step < end) passed = false;
  }
  // If all ranks left before the end, training has ended, not the plan.
  if (!reached) return {};
  if (!silent.empty()) {
    if (!passed) {
      passed_.reset();
      return {};
    }
    if (!passed_) passed_ = now;
    if (now - *passed_ < kFinishTimeout) return {};
  }
  ended_ = true;
  written_back_ = !newest.verdict.plan->file;
  return End{revision, newest.schedule.last(), std::move(silent), newest.verdict.plan->file};
}

void CommittedPlans::write_back_ended(Revision revision) {
  if (!plans_.empty() && plans_.back().verdict.revision == revision) ended_ = written_back_ = true;
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// Coordinator: the changes that it proposes by itself.
#include <utility>

#include "control/agree/coordinator.h"

namespace gradmon {

// What holds, once more: with what it has not yet collected before it is replaced.
std::shared_ptr<Plan> Coordinator::continued(Cause cause, std::string by) const {
  auto plan = std::make_shared<Plan>(*last_.commit->plan);
  plan->continues = committed_.newest()->schedule;
  plan->cause = cause;
  plan->by = std::move(by);
  plan->request_id.clear();
  return plan;
}

void Coordinator::resync(Rank rank, Revision missed, CoordinatorActions& actions, WallTime now) {
  const bool known = !last_.commit || missed != last_.commit->revision || resynced_ >= missed;
  if (known || waiting_ || open_) return;  // an open change brings all together as well
  resynced_ = missed;
  auto plan = continued(Cause::resync, "rank " + std::to_string(rank.value) + " missed revision " +
                                           std::to_string(missed.value));
  actions.warnings.push_back(plan->by + ": bringing all ranks together again");
  actions += propose(std::move(plan), now);
}

void Coordinator::keep_budget(CoordinatorActions& actions, WallTime now) {
  if (waiting_ || open_ || !last_.commit || committed_.ended()) return;
  const CommittedPlans::One& newest = *committed_.newest();
  const Plan& in_force = *newest.verdict.plan;
  if (!in_force.on || !in_force.max_overhead) return;
  std::vector<OverheadBudget::RankCost> costs;
  for (int rank = 0; rank < roster_.size(); ++rank) {
    const Roster::Seat& seat = roster_.seat(rank);
    if (seat.left()) continue;
    if (seat.progress.step >= newest.schedule.end()) return;
    costs.push_back({rank, seat.progress.overhead});
  }
  const auto change = budget_.change_due(in_force, newest.verdict.revision, costs);
  if (!change) return;
  auto plan = continued(Cause::budget, "the budget (" + change->why + ")");
  plan->on = change->on;
  plan->step_interval = change->step_interval;
  actions.log.push_back("max_overhead: " + change->why);
  actions += propose(std::move(plan), now);
}

}  // namespace gradmon

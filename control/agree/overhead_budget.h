// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "control/agree/overhead.h"
#include "control/agree/plan.h"

namespace gradmon {

// Decides when a plan must be thinned out so that monitoring stays within its
// max_overhead, and when it may be eased again. Pure; the coordinator's thread.
//
// Where the share of any rank lies above max_overhead over a full window of
// OverheadMeter (eight collected steps under the plan in force: fewer may be one
// hiccup of a disk), the interval goes to the least of k, 2k, 4k … 4096k, k being
// the user's, for which the measured cost of a collected step is within the
// budget; where not even 4096k is, collecting goes off, for good, as at an end.
// It is eased where every rank has measured so many collected steps and, at the
// smaller interval, would need no more than 0.7 of the budget. Each time that
// proves wrong the next easing waits for twice as many collected steps, up to
// 1024. The user's next change begins anew.
class OverheadBudget {
 public:
  struct RankCost {
    int rank = 0;
    Overhead measured;
  };
  struct Change {
    bool on = true;
    std::int64_t step_interval = 1;
    std::string why;  // "rank 3 spends 4.1 % of its time, allowed 1 %; …"
  };

  // A plan is committed.
  void on_commit(const Plan& plan);
  // What is to come in place of the plan in force, said once for each revision.
  // `costs`: of every rank that takes part.
  std::optional<Change> change_due(const Plan& plan, Revision revision, const std::vector<RankCost>& costs);

 private:
  std::optional<Change> thin_out(const Plan& plan, const RankCost& worst);
  std::optional<Change> loosen(const Plan& plan, const RankCost& worst);

  std::int64_t users_interval_ = 1;
  std::int64_t patience_ = 0;  // collected steps before an easing
  bool loosened_ = false;      // the last change was one
  Revision answered_;          // the last for which a change was due
};

}  // namespace gradmon

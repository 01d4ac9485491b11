// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "control/agree/membership.h"
#include "control/agree/plan.h"
#include "control/agree/schedule.h"

namespace gradmon {

struct CommittedPlan {
  Verdict verdict;
  Schedule schedule;
  bool announced = false;  // the job's log says that a rank has applied it
};

// The committed plans from the one that Membership::status_member() runs to the newest. Detects when the
// newest plan has ended on all ranks. One thread.
class CommittedPlans {
 public:
  // A plan has ended on all ranks; `dynamic_on` may be written back.
  struct End {
    Revision revision;
    Step last;                         // the last collected step; -1: none
    std::vector<int> silent;           // ranks that did not report the end in time
    std::optional<FileIdentity> file;  // the plan's save of the config file; none: nothing to write back
  };

  void add(const Verdict& commit);
  // Returns true if the plan is known and this is the first call for it.
  bool announce(Revision revision);
  void forget_before(Revision revision);
  const CommittedPlan* find(Revision revision) const;  // null: unknown, or no longer kept
  const CommittedPlan* newest() const;                 // null: none yet

  // Returns the end of the newest plan once: when every rank has reported the end, or 10 s after every rank
  // that still makes steps has passed it. Returns none if all ranks left before they reached the end.
  std::optional<End> check_ended(const Membership& members, Ticks now);
  bool ended() const { return ended_; }  // true: the newest plan has ended
  void write_back_ended(Revision revision);
  bool write_back_outstanding() const { return ended_ && !written_back_; }

 private:
  std::vector<CommittedPlan> plans_;  // by rising revision
  // The state of the newest plan.
  bool ended_ = false;
  bool written_back_ = false;
  std::optional<Ticks> passed_;  // the time when every rank that still makes steps had passed the end
};

}  // namespace gradmon

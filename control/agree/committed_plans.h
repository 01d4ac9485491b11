// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "control/agree/membership.h"
#include "control/agree/plan.h"
#include "control/agree/schedule.h"

namespace gradmon {

// The committed plans that still matter: from what rank 0 runs to the newest.
// Knows when the newest has run to its end on all ranks. One thread.
class CommittedPlans {
 public:
  struct One {
    Verdict verdict;
    Schedule schedule;
  };

  // A plan has ended: `dynamic_on` may be written back.
  struct End {
    Revision revision;
    Step last;                         // the last step collected; before the first: none
    std::vector<int> silent;           // ranks that did not report it in time
    std::optional<FileIdentity> file;  // the save it came from; none: nothing to write back
  };

  void add(const Verdict& commit);
  void forget_before(Revision revision);
  const One* find(Revision revision) const;  // null: none, or no longer kept
  const One* newest() const;                 // null: none yet

  // Once per plan: as soon as every rank has finished it, or some time after the
  // last rank that still steps has passed it.
  std::optional<End> check_ended(const Membership& members, Ticks now);
  bool ended() const { return ended_; }  // the newest
  void write_back_ended(Revision revision);
  bool write_back_outstanding() const { return ended_ && !written_back_; }

 private:
  std::vector<One> plans_;  // rising
  // Of the newest.
  bool ended_ = false;
  bool written_back_ = false;
  std::optional<Ticks> passed_;  // when the last rank that steps had passed the end
};

}  // namespace gradmon

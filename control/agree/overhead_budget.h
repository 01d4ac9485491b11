// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "control/agree/plan.h"
#include "gradmon/status.h"

namespace gradmon {

// A share for people: "4.1 %".
std::string percent_text(double share);

// Measures the share of a rank's training time that monitoring takes:
//
//   share = (time spent in monitoring during the window) / (wall time of the window)
//
// Time spent: gradmon's calls and hooks in collected steps, including the wait for a place in a full
// queue. It excludes the wait for a verdict and the work done once per plan (attaching).
// A round is one whole interval: from the beginning of a collected step to the beginning of the next one,
// including the steps between, which cost nothing. The window is the last eight rounds, or fewer at first.
// A plan's first round is warm-up (directories, files, buffers) and does not count.
//
// Used on the training thread. The caller passes the time, of a steady clock with any origin.
class OverheadMeter {
 public:
  using Time = std::chrono::nanoseconds;
  static constexpr std::int64_t kWindow = 8;

  // Another plan is in force: drops all measurements.
  void begin_plan(Revision revision);
  // Call it at the boundary before a collected step. `spent`: time spent since the last call.
  void begin_collected(Step step, Time now, Time spent);
  const Overhead& measured() const { return measured_; }

 private:
  struct Round {
    Time spent{};
    Time wall{};
    std::int64_t steps = 0;
  };
  struct Begin {
    Step step;
    Time at;
  };

  Overhead measured_;
  std::array<Round, kWindow> rounds_;
  std::optional<Begin> begun_;
  bool warm_ = false;
};

// Raises a plan's step interval so that monitoring stays within max_overhead, and lowers it again if the
// budget allows it. Pure; the coordinator's thread. Let k be the interval that the user has set.
//
// Raise: the share of some rank is above max_overhead over a full window of OverheadMeter (eight
// collected steps under the plan in force; a single slow disk access can distort fewer). The new interval is
// the least of k, 2k, 4k … 4096k at which the measured cost of a collected step is within max_overhead.
// If none is, collecting goes off for good, as at the end of a plan.
//
// Lower: every rank has measured `patience` collected steps, and at the lower interval the costliest rank
// would need at most 0.7 of max_overhead. `patience` starts at eight. If the interval must be raised
// after it was lowered, `patience` doubles, up to 1024. The user's next change resets everything.
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
  // The change that must replace the plan in force, if any; at most one for each revision. `costs`: of
  // every rank that takes part.
  std::optional<Change> change_due(const Plan& plan, Revision revision, const std::vector<RankCost>& costs);

 private:
  std::optional<Change> raise_interval(const Plan& plan, const RankCost& worst);
  std::optional<Change> lower_interval(const Plan& plan, const RankCost& worst);

  std::int64_t users_interval_ = 1;
  std::int64_t steps_before_lowering_ = 0;  // collected steps on every rank before the interval is lowered
  bool lowered_ = false;                    // the last change lowered the interval
  Revision answered_;                       // the last revision for which a change was due
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "control/alerts/alert_report.h"
#include "control/step.h"

namespace gradmon {

// The alerts that the lead hub has sent to ranks to raise (AnomalyRankDivergence), until the rank has
// reported them. If a rank's process ends before, the hub raises them itself. Keeps the newest kMostKept.
// Pure; one thread.
class UnraisedAlerts {
 public:
  static constexpr std::size_t kMostKept = 256;

  struct Told {
    Rank rank;
    std::string process_id;  // of the process that must raise it
    RankAlert alert;
  };

  // The alerts of this report were sent to the process, to raise them.
  void tell(Rank rank, const std::string& process_id, AlertReport report);
  // The process has raised the alerts of this report. Returns it without those of take_orphans().
  AlertReport raised(Rank rank, const std::string& process_id, AlertReport report);
  // Removes and returns the alerts of processes that have ended.
  std::vector<Told> take_orphans(const std::function<bool(Rank, const std::string& process_id)>& has_ended);

 private:
  std::deque<Told> unraised_;  // the newest last
  std::deque<Told> orphans_;   // taken by take_orphans(); a rank that was silent may report them late
};

}  // namespace gradmon

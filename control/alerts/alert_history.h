// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "control/alert_rule.h"
#include "control/alerts/alert_report.h"
#include "control/step.h"

namespace gradmon {

// The alerts of all ranks of a job: permanently the first one of each rule and step, and the newest of the
// others. Bounded in total, for each rank and for each rule, so that no rank or rule can push out the alerts
// of the others. Pure; one thread.
class AlertHistory {
 public:
  // Bounds of the newest ones.
  static constexpr std::size_t kMostKept = 4'096;
  static constexpr std::size_t kMostKeptOfARank = 256;
  // Bounds of the first ones: the steps of a rule, and of a rule and rank. Later steps are among the newest.
  static constexpr std::size_t kMostFirstOfARule = 256;
  static constexpr std::size_t kMostFirstOfARank = 32;

  // `first`: the number of the first alert. A restarted hub passes a number above all earlier ones.
  explicit AlertHistory(std::uint64_t first) : next_(first) {}

  // An alert and the process of its rank.
  struct Kept {
    Alert alert;
    std::string process_id;
  };
  // Takes the alerts that an earlier hub of this job has kept, by rising number, while they have room. Skips
  // alerts that are not older than this whole history.
  void restore(std::vector<Kept> earlier);

  // Adds the report of the rank's present process, cut by bounded(). Returns its alerts as they are kept.
  // `now`: ms since 1970.
  std::vector<Alert> add(Rank rank, const std::string& process_id, AlertReport report, std::int64_t now);

  struct Query {
    std::uint64_t after = 0;           // only alerts with a higher number; 0: all alerts
    std::optional<std::int64_t> rank;  // only this rank's
    std::size_t most_bytes = 0;        // of all the answer's alerts, by size_of()
  };
  // Alerts by rising number. If they do not all fit into `most_bytes`: without `after`, the first ones of
  // each rule and step in half of it, and the newest; with `after`, the first ones after it, so that a caller
  // that asks again with the last number misses none.
  std::vector<Alert> find(const Query& query) const;

  // The first alert of each rule and step, by rising number.
  const std::deque<Alert>& first() const { return first_; }

  // The number of alerts that the rank's present process has reported, including those no longer kept;
  // without AlertReport::left_out.
  std::uint64_t listed(Rank rank) const;

 private:
  static constexpr std::size_t kRules = kAnomalyNames.size() + 1;  // the last: alerts without a known rule

  struct OfRank {
    std::string process_id;
    std::uint64_t listed = 0;
    std::size_t kept = 0;
    std::array<std::size_t, kRules> first{};
  };

  bool take_first(const Alert& alert);
  void forget_oldest(int rank);

  std::uint64_t next_;
  std::deque<Alert> first_;                           // by rising number
  std::array<std::set<std::int64_t>, kRules> steps_;  // of first_
  std::deque<Alert> kept_;                            // the newest others, by rising number
  std::map<int, OfRank> ranks_;
};

// The alerts that the lead hub has sent to ranks to raise (AnomalyRankDivergence), until the rank has
// reported them. If a rank's process ends before, the hub raises them itself. Keeps the newest kMostKept.
// Pure; one thread.
class UnraisedAlerts {
 public:
  static constexpr std::size_t kMostKept = 256;

  struct Told {
    Rank rank;
    std::string process_id;  // of the process that must raise it
    Alert alert;
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

// Limits how often alerts start an action: `pause` must have passed since the last start. Pure; one thread.
class AlertTrigger {
 public:
  using Time = std::chrono::milliseconds;  // of a steady clock

  // Returns true if an alert may start the action now; then the pause begins.
  bool try_fire(Time now, Time pause) {
    if (fired_ && now - *fired_ < pause) return false;
    fired_ = now;
    return true;
  }

 private:
  std::optional<Time> fired_;  // last start
};

}  // namespace gradmon

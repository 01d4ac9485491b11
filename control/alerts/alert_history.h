// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "control/alerts/alert_report.h"

namespace gradmon {

// The newest alerts of all ranks of a job. Bounded as a whole and for each rank, so that one rank cannot push
// out the alerts of the others. Pure; one thread.
class AlertHistory {
 public:
  static constexpr std::size_t kMostKept = 4'096;
  static constexpr std::size_t kMostKeptOfARank = 256;

  // `first`: the number of the first alert. A restarted hub passes a number above all earlier ones.
  explicit AlertHistory(std::uint64_t first) : next_(first) {}

  // An alert and the process of its rank.
  struct Kept {
    RankAlert alert;
    std::string process_id;
  };
  // Takes the alerts that an earlier hub of this job has kept, by rising number, as far as there is room.
  // Those that are not older than all of this history are left out.
  void restore(std::vector<Kept> earlier);

  // Adds the report of the process that is the rank now, cut by bounded(). Returns its alerts as they are
  // kept. `now`: ms since 1970.
  std::vector<RankAlert> add(Rank rank, const std::string& process_id, AlertReport report, std::int64_t now);

  struct Query {
    std::uint64_t after = 0;           // only alerts with a higher number; 0: all alerts
    std::optional<std::int64_t> rank;  // only this rank's
    std::size_t most_bytes = 0;        // of all the answer's alerts, by size_of()
  };
  // Alerts in the order of their numbers. If not all of them fit into `most_bytes`: without `after` the
  // newest ones, otherwise the first ones after it, so that a caller that asks again with the last number
  // misses none.
  std::vector<RankAlert> find(const Query& query) const;

  // How many alerts the rank's present process has reported, also those that are not kept any more; without
  // AlertReport::left_out.
  std::uint64_t listed(Rank rank) const;

 private:
  struct OfRank {
    std::string process_id;
    std::uint64_t listed = 0;
    std::size_t kept = 0;
  };

  void forget_oldest_of(int rank);

  std::uint64_t next_;
  std::deque<RankAlert> kept_;  // by rising number
  std::map<int, OfRank> ranks_;
};

}  // namespace gradmon

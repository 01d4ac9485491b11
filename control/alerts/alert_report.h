// SPDX-License-Identifier: Apache-2.0
// The alerts of a rank as sent from the rank to the lead hub, and from there to gradmonctl. Values; any
// thread. A new field needs a number in control/wire/messages.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "control/step.h"

namespace gradmon {

inline constexpr std::size_t kMostAlertsInAReport = 16;

// writers/alerts/ALERTS.md explains the fields.
struct RankAlert {
  // Set by the lead hub.
  std::uint64_t number = 0;  // rises from alert to alert of the job; 0: not numbered yet
  std::int64_t at = 0;       // when the lead hub received it, ms since 1970
  Rank rank;
  // Set by the rank.
  std::string rule;  // "AnomalyNan"
  std::int64_t step = 0;
  std::int64_t micro_step = 0;  // 0: the row covers the whole step
  std::int64_t pp_stage = 0;
  std::int64_t vpp_stage = 0;
  std::uint64_t call_id = 0;  // number of the row in the step, as read, over all kinds, from 0
  std::string tag_name;       // "0:fc1.input:0/rank0/actv"
  std::string op;             // "norm"
  double value = 0;
  double history_mean = 0;
  std::string message;  // one sentence for people
  // Number of the step's alerts of this rank and rule that the report omits. Set only in the first alert of a
  // rule.
  std::uint64_t left_out = 0;
};

// The alerts of one step of one rank.
struct AlertReport {
  std::vector<RankAlert> alerts;  // at most kMostAlertsInAReport
  std::uint64_t left_out = 0;     // alerts of that step missing in `alerts`
};

// Cuts the report to kMostAlertsInAReport alerts, and their texts to 64 (rule, op), 512 (tag_name) and 1,000
// bytes (message). Adds the removed alerts to left_out.
AlertReport bounded(AlertReport report);

// Returns roughly the bytes that the alert takes in a message.
std::size_t size_of(const RankAlert& alert);

}  // namespace gradmon

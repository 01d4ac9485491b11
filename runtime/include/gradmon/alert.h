// SPDX-License-Identifier: Apache-2.0
// An alert of a rank. Standard library only; every folder may include it.
#pragma once

#include <cstdint>
#include <string>

#include "gradmon/types.h"

namespace gradmon {

// A rule of the config's `alert` has fired for a value of a row: for the program, the lead hub and
// gradmonctl. writers/alerts/ALERTS.md explains the fields. A new field needs a line in each_alert_field()
// (control/alerts/alert_report.h). A value.
struct Alert {
  // Set by the lead hub.
  std::uint64_t number = 0;  // rises from alert to alert of the job; 0: not numbered yet
  WallTime at = 0;           // when the lead hub received it; 0: not yet
  // Set by the rank.
  Rank rank;
  std::string rule;  // "AnomalyNan"
  std::int64_t step = 0;
  std::int64_t micro_step = 0;  // 0: the row covers the whole step
  std::int64_t pp_stage = 0;
  std::int64_t vpp_stage = 0;
  std::uint64_t call_id = 0;  // number of the row among all rows of the step, in reading order, from 0
  std::string tag_name;       // "0:fc1.input:0/rank0/actv"
  std::string op;             // "norm"
  double value = 0;
  double history_mean = 0;  // of abs(value), before it
  std::string message;      // one sentence for people
  // Number of the step's alerts of this rank and rule that its report omits. Set only in the first alert of a
  // rule.
  std::uint64_t left_out = 0;
};

}  // namespace gradmon

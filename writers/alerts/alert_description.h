// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "control/alert_rule.h"
#include "control/alerts/alert_report.h"
#include "control/step.h"
#include "writers/alerts/alert_evaluator.h"
#include "writers/queue/name_table.h"
#include "writers/queue/record_batch.h"
#include "writers/queue/sink.h"

namespace gradmon {

// The source of alerts: this rank, and its place in the pipeline.
struct AlertOrigin {
  Rank rank;
  int pp_stage = 0;              // place of the rank in `group_mates`
  std::vector<int> group_mates;  // ranks of its pipeline, in the order of their stages
};

// "{vpp}:{name}[:{micro}]/rank{R}/{task}", msprobe's tag for the row. The task is the file's prefix, except
// `pre_grad` (per micro batch) or `acc_grad` for grad_unreduced and `post_grad` for grad_reduced.
std::string make_tag_name(const Record& record, const Layout& layout, const NameTable& names, Rank rank);

// "Rule AnomalyTurbulence reports anomaly signal in ('0:fc1.input:0/rank0/actv', 'norm') at step 2, current
// value 27.77, history mean 5.55." Numbers as Python prints them.
std::string alert_message(const Alert& alert);

// `records`: the records of the findings. Makes at most AlertEvaluator::kMostFindings alerts.
AlertReport describe(const std::vector<Finding>& findings, const RecordBatch& records, const Layout& layout,
                     const NameTable& names, const AlertOrigin& origin);

// Chooses the log lines for a rank's alerts: one line for each step and rule (a scalar that is reported after
// the step's end comes in a call of its own, and has no second line), and for each rule at most
// kBurst lines at once and then one in each kPause. The five rules together log less than 200 lines in an
// hour. Counts alerts without a line in the rule's next line. Pure; one thread.
class AlertLog {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr int kBurst = 12;
  static constexpr std::chrono::seconds kPause{150};

  // The lines to log now, in the order of the alerts.
  std::vector<std::string> lines(const AlertReport& report, Time now);

 private:
  struct OfRule {
    int lines_left = kBurst;
    Time counted_to{};              // lines_left includes lines that became free until then
    std::uint64_t not_logged = 0;   // alerts
    std::int64_t since = 0;         // step of the first one
    std::int64_t logged_step = -1;  // of the last line
  };

  OfRule& of(const std::string& rule);

  std::array<OfRule, kAnomalyNames.size()> rules_;
};

// The last alerts of this rank. The writer thread adds them, the program reads them. Any thread.
class RecentAlerts {
 public:
  static constexpr std::size_t kMostKept = 256;

  std::vector<Alert> alerts() const;  // oldest first
  void add(const AlertReport& report);

 private:
  mutable std::mutex mutex_;
  std::deque<Alert> alerts_;  // guarded by mutex_
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "control/step.h"
#include "writers/alerts/alert_evaluator.h"
#include "writers/queue/name_table.h"
#include "writers/queue/record.h"
#include "writers/queue/sink.h"

namespace gradmon {

// The source of alerts: this rank, and its place in the pipeline.
struct AlertOrigin {
  Rank rank;
  int pp_stage = 0;              // place of the rank in `group_mates`
  std::vector<int> group_mates;  // ranks of its pipeline, in the order of their stages
};

// An alert as users see it. A value.
struct AlertEvent {
  std::string rule;  // "AnomalyNan"
  Rank rank;
  Step step;
  int micro_step = 0;  // 0: the row covers the whole step
  int pp_stage = 0;
  int vpp_stage = 0;
  std::uint64_t call_id = 0;  // number of the row in the step, as read, over all kinds, from 0
  std::string tag_name;       // "0:fc1.input:0/rank0/actv"
  std::string op;             // "norm"
  double value = 0;
  double history_mean = 0;
  std::string message;
  std::vector<int> group_mates;
  std::uint64_t left_out = 0;  // see Finding
};

struct StepAlerts {
  Step step{-1};
  std::vector<AlertEvent> events;  // at most AlertEvaluator::kMostFindings
  std::uint64_t left_out = 0;      // further alerts
};

// "{vpp}:{name}[:{micro}]/rank{R}/{task}", msprobe's tag for the row. The task is the file's prefix, except
// `pre_grad` (per micro batch) or `acc_grad` for grad_unreduced and `post_grad` for grad_reduced.
std::string make_tag_name(const Record& record, const Layout& layout, const NameTable& names, Rank rank);

// "Rule AnomalyTurbulence reports anomaly signal in ('0:fc1.input:0/rank0/actv', 'norm') at step 2, current
// value 27.77, history mean 5.55." Numbers as Python prints them.
std::string alert_message(const AlertEvent& event);

// `records`: the records of the findings.
StepAlerts describe(const std::vector<Finding>& findings, Step step, const std::vector<Record>& records,
                    const Layout& layout, const NameTable& names, const AlertOrigin& origin);

// The last alerts of this rank. The writer thread adds them, the program reads them. Any thread.
class RecentAlerts {
 public:
  static constexpr std::size_t kMostKept = 256;

  struct Content {
    std::vector<AlertEvent> events;  // oldest first
    std::uint64_t total = 0;         // alerts so far, including dropped ones
  };

  Content content() const;
  void add(const StepAlerts& alerts);

 private:
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::deque<AlertEvent> events_;
  std::uint64_t total_ = 0;
};

}  // namespace gradmon

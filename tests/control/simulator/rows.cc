// SPDX-License-Identifier: Apache-2.0
#include "tests/control/simulator/rows.h"

#include <algorithm>

namespace gradmon {

void Rows::mark_unknown(const std::string& process_id, Step heard) {
  for (auto at = rows_.upper_bound(heard.value); at != rows_.end(); ++at) {
    for (Row& row : at->second) row.unknown = row.unknown || row.process_id == process_id;
  }
}

std::string Rows::conflict() const {
  for (const auto& [step, rows] : rows_) {
    const Row* first = nullptr;
    for (const Row& row : rows) {
      if (row.unknown) continue;
      if (first == nullptr) first = &row;
      if (row.epoch == first->epoch && row.revision == first->revision) continue;
      return "step " + std::to_string(step) + " counts under revision " + std::to_string(first->revision) +
             " of " + first->epoch + " (" + first->process_id + ") and under revision " +
             std::to_string(row.revision) + " of " + row.epoch + " (" + row.process_id + ")";
    }
  }
  return "";
}

namespace {

std::int64_t first_of(const Verdict& commit) {
  return std::max(commit.effective.value, commit.plan->at.value);
}

// Of a plan that is on.
std::int64_t times_of(const Verdict& commit) {
  const Plan& plan = *commit.plan;
  if (!plan.continues) return plan.collect_times;
  std::int64_t times = plan.continues->times();
  for (std::int64_t t = plan.continues->first().value; t < first_of(commit) && times > 0;
       t += plan.continues->interval())
    times -= 1;
  return times;
}

}  // namespace

bool is_collected(const Verdict& commit, Step at) {
  const Plan& plan = *commit.plan;
  if (!plan.on) return false;
  const std::int64_t after = at.value - first_of(commit);
  return after >= 0 && after % plan.step_interval == 0 && after / plan.step_interval < times_of(commit);
}

std::int64_t collected_from(const Verdict& commit, Step from) {
  if (!commit.plan->on) return 0;
  const std::int64_t past = std::max<std::int64_t>(0, from.value - first_of(commit));
  const std::int64_t collected = (past + commit.plan->step_interval - 1) / commit.plan->step_interval;
  return std::max<std::int64_t>(0, times_of(commit) - collected);
}

}  // namespace gradmon

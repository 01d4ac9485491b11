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

bool is_collected(const Verdict& commit, Step at) {
  const Plan& plan = *commit.plan;
  if (!plan.on) return false;
  const std::int64_t step = at.value;
  const std::int64_t first = std::max(commit.effective.value, plan.at.value);
  std::int64_t times = plan.collect_times;
  if (plan.continues) {
    const std::int64_t old = plan.continues->first().value;
    times = plan.continues->times();
    for (std::int64_t t = old; t < first && times > 0; t += plan.continues->interval()) times -= 1;
  }
  return step >= first && (step - first) % plan.step_interval == 0 &&
         (step - first) / plan.step_interval < times;
}

}  // namespace gradmon

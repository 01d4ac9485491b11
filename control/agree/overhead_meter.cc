// SPDX-License-Identifier: Apache-2.0
#include "control/agree/overhead_meter.h"

#include <utility>

namespace gradmon {

void OverheadMeter::begin_plan(Revision revision) {
  *this = {};
  measured_.revision = revision;
}

void OverheadMeter::begin_collected(Step step, Time now, Time spent) {
  const auto begun = std::exchange(begun_, Begin{step, now});
  if (!begun || !std::exchange(warm_, true)) return;
  rounds_[static_cast<std::size_t>(measured_.collected % kWindow)] = {spent, now - begun->at,
                                                                      step - begun->step};
  measured_.collected += 1;
  Round all;
  for (const Round& round : rounds_) {
    all.spent += round.spent;
    all.wall += round.wall;
    all.steps += round.steps;
  }
  measured_.steps = all.steps;
  measured_.share =
      all.wall > Time{} ? static_cast<double>(all.spent.count()) / static_cast<double>(all.wall.count()) : 0;
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "control/agree/plan.h"

#include <algorithm>

namespace gradmon {

const char* name_of(Cause cause) {
  switch (cause) {
    case Cause::start:
      return "start";
    case Cause::file:
      return "file";
    case Cause::ctl:
      return "ctl";
    case Cause::resync:
      return "resync";
    case Cause::retry:
      return "retry";
    case Cause::alert:
      return "alert";
    case Cause::budget:
      return "budget";
  }
  return "file";
}

bool is_of_user(const Plan& plan) {
  return plan.cause != Cause::resync && plan.cause != Cause::alert && plan.cause != Cause::budget;
}

Schedule schedule_of(const Plan& plan, Step effective) {
  if (!plan.on) return {effective, 1, 0};
  const Step first = std::max(effective, plan.at);
  const std::int64_t times =
      plan.continues ? plan.continues->times() - plan.continues->collected_before(first) : plan.collect_times;
  return {first, plan.step_interval, times};
}

const std::optional<FileIdentity>& config_save(const Plan& plan) {
  return plan.returns_to ? plan.returns_to->file : plan.file;
}

Schedule left_at(const Schedule& schedule, Step since) {
  return {kNever, schedule.interval(), schedule.times() - schedule.collected_before(since)};
}

}  // namespace gradmon

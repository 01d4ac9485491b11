// SPDX-License-Identifier: Apache-2.0
#include "control/agree/plan.h"

#include <algorithm>

#include "control/config/config_parser.h"
#include "control/config/file_content.h"

namespace gradmon {

bool Schedule::collects(Step t) const {
  if (t < first_) return false;
  const std::int64_t since = t - first_;
  return since % interval_ == 0 && since / interval_ < times_;
}

std::int64_t Schedule::collected_before(Step t) const {
  if (t <= first_) return 0;
  const std::int64_t since = t - first_;
  return std::min(times_, (since - 1) / interval_ + 1);
}

Step Schedule::end() const {
  if (times_ == 0) return first_;
  const std::int64_t room = (kNever - first_ - 1) / interval_;
  if (times_ - 1 > room) return kNever;
  return first_ + (times_ - 1) * interval_ + 1;
}

Step Schedule::next_change(Step t) const {
  if (t <= first_) return first_;
  const Step end = this->end();
  if (t > end) return kNever;
  const std::int64_t phase = (t - first_) % interval_;
  if (phase <= 1) return t;
  return std::min(t + (interval_ - phase), end);
}

Schedule static_schedule(Step start_step, Step start_iteration, std::int64_t interval, std::int64_t times) {
  if (start_iteration <= start_step) return {start_step, interval, times};
  const std::int64_t behind = start_iteration - start_step;
  const std::int64_t rounds = (behind + interval - 1) / interval;
  return {start_step + rounds * interval, interval, times};
}

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

Result<PlanSource> plan_from_config(const FileContent& content, const std::string& file_name) {
  const auto parsed = content.parsed
                          ? content.parsed
                          : std::make_shared<const ConfigResult>(parse_config(content.text, file_name));
  if (!*parsed) return tl::unexpected(to_string(parsed->error()));
  const Config& config = (*parsed)->config;
  PlanSource source;
  for (const ConfigWarning& warning : (*parsed)->warnings) {
    source.warnings.push_back(to_string(warning));
    if (!warning.unknown.empty()) source.unknown.push_back(warning.unknown);
  }
  source.plan = std::make_shared<Plan>();
  source.plan->on = config.dynamic_on;
  source.plan->config_text = content.text;
  source.plan->config_sha256 = content.identity.sha256;
  source.plan->collect_times = config.collect_times;
  source.plan->step_interval = config.step_interval;
  source.plan->lookahead = config.lookahead_steps;
  source.plan->max_wait = config.max_wait;
  source.plan->max_overhead = config.max_overhead;
  source.plan->config = std::shared_ptr<const Config>(parsed, &config);
  return source;
}

Result<PlanSource> plan_from_config(const std::string& text, const std::string& file_name) {
  return plan_from_config(FileContent{text, {0, text.size(), sha256_hex(text)}}, file_name);
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

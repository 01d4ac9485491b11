// SPDX-License-Identifier: Apache-2.0
#include "control/agree/overhead_budget.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <utility>

namespace gradmon {

std::string percent_text(double share) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), share < 0.0995 ? "%.2g %%" : "%.0f %%", 100 * share);
  return text.data();
}

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

namespace {

constexpr std::int64_t kMostTimes = 4096;
constexpr std::int64_t kMostPatience = 1024;
constexpr std::int64_t kMostInterval = std::numeric_limits<std::int64_t>::max() / kMostTimes;
constexpr double kComfortable = 0.7;

std::string steps_text(std::int64_t interval) {
  return interval == 1 ? "every step" : "every " + std::to_string(interval) + " steps";
}

// The cost c of a collected step, as a multiple of the time of a step without monitoring. At interval k
// the share is c / (k + c).
double step_cost(const Overhead& measured, std::int64_t interval) {
  const double share = std::clamp(measured.share, 0.0, 0.999'999);
  return static_cast<double>(interval) * share / (1 - share);
}

// The least of k, 2k … 4096k (k: `users`) at which the cost is within `share`; 0 if none is.
std::int64_t least_interval(std::int64_t users, double cost, double share) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max() / 2;
  for (std::int64_t times = 1; times <= kMostTimes && users <= most / times; times *= 2) {
    const auto interval = static_cast<double>(users * times);
    if (cost <= share * (interval + cost)) return users * times;
  }
  return 0;
}

}  // namespace

void OverheadBudget::on_commit(const Plan& plan) {
  if (!is_of_user(plan)) return;
  *this = {};
  users_interval_ = plan.step_interval;
  steps_before_lowering_ = OverheadMeter::kWindow;
}

std::optional<OverheadBudget::Change> OverheadBudget::change_due(const Plan& plan, Revision revision,
                                                                 const std::vector<RankCost>& costs) {
  if (!plan.on || !plan.max_overhead || answered_ == revision) return {};
  const RankCost* worst = nullptr;
  bool all_patient = true;
  for (const RankCost& cost : costs) {
    const std::int64_t collected = cost.measured.revision == revision ? cost.measured.collected : 0;
    all_patient = all_patient && collected >= steps_before_lowering_;
    if (collected < OverheadMeter::kWindow) continue;
    if (worst == nullptr || cost.measured.share > worst->measured.share) worst = &cost;
  }
  if (worst == nullptr) return {};
  std::optional<Change> change;
  if (worst->measured.share > *plan.max_overhead) {
    change = raise_interval(plan, *worst);
  } else if (all_patient && plan.step_interval > users_interval_) {
    change = lower_interval(plan, *worst);
  }
  if (change) answered_ = revision;
  return change;
}

std::optional<OverheadBudget::Change> OverheadBudget::raise_interval(const Plan& plan,
                                                                     const RankCost& worst) {
  if (lowered_) steps_before_lowering_ = std::min(2 * steps_before_lowering_, kMostPatience);
  lowered_ = false;
  const double cost = step_cost(worst.measured, plan.step_interval);
  const std::int64_t interval = least_interval(users_interval_, cost, *plan.max_overhead);
  const std::string why = "rank " + std::to_string(worst.rank) + " spends " +
                          percent_text(worst.measured.share) + " of its time, allowed " +
                          percent_text(*plan.max_overhead);
  if (interval <= plan.step_interval) {
    return Change{false, plan.step_interval,
                  why + "; even " + steps_text(kMostTimes * std::min(users_interval_, kMostInterval)) +
                      " would exceed it"};
  }
  return Change{true, interval,
                why + "; " + steps_text(interval) + ", not " + steps_text(plan.step_interval)};
}

std::optional<OverheadBudget::Change> OverheadBudget::lower_interval(const Plan& plan,
                                                                     const RankCost& worst) {
  const double cost = step_cost(worst.measured, plan.step_interval);
  const std::int64_t interval = least_interval(users_interval_, cost, kComfortable * *plan.max_overhead);
  if (interval == 0 || interval >= plan.step_interval) return {};
  lowered_ = true;
  return Change{true, interval,
                "no rank spends more than " + percent_text(worst.measured.share) + " of its time, allowed " +
                    percent_text(*plan.max_overhead) + "; " + steps_text(interval) + ", not " +
                    steps_text(plan.step_interval)};
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "runtime/target_ledger.h"

#include <algorithm>
#include <new>

namespace gradmon {

void TargetLedger::begin_plan() {
  seen_.clear();
  const std::lock_guard lock(mutex_);
  expected_.clear();
  unmatched_.clear();
  fired_.clear();
  collected_ = 0;
}

void TargetLedger::expect(std::vector<ExpectedTarget> expected, std::vector<UnmatchedTarget> unmatched) {
  const std::lock_guard lock(mutex_);
  expected_ = std::move(expected);
  unmatched_ = std::move(unmatched);
}

void TargetLedger::see(Kind kind, std::uint32_t target) noexcept {
  try {
    seen_.emplace_back(kind, target);
  } catch (const std::bad_alloc&) {
  }
}

void TargetLedger::end_step(Step step, WallTime now) noexcept {
  const std::lock_guard lock(mutex_);
  collected_ += 1;
  try {
    for (const auto& [kind, target] : seen_) fired_[key_of(kind, target)] = {step.value, now, collected_};
  } catch (const std::bad_alloc&) {
  }
  seen_.clear();
}

TargetStatus TargetLedger::status_of(Kind kind, std::uint32_t target, const std::string& why) const {
  TargetStatus status;
  status.kind = name_of(kind);
  const int stage = names_.vpp_stage(target);
  status.name = (stage == 0 ? "" : std::to_string(stage) + ":") + names_.name(target);
  const auto found = fired_.find(key_of(kind, target));
  const Fired fired = found == fired_.end() ? Fired{} : found->second;
  status.last_step = fired.step;
  status.last_at = fired.at;
  status.silent_steps = collected_ - fired.collected;
  if (status.silent()) status.why = why;
  return status;
}

TargetList TargetLedger::list() const {
  const std::lock_guard lock(mutex_);
  TargetList list;
  list.unmatched = unmatched_;
  auto others = fired_;
  for (const ExpectedTarget& one : expected_) {
    list.targets.push_back(status_of(one.kind, one.target, one.why));
    others.erase(key_of(one.kind, one.target));
  }
  std::vector<Key> unexpected;
  for (const auto& other : others) unexpected.push_back(other.first);
  std::sort(unexpected.begin(), unexpected.end());
  for (const Key key : unexpected) {
    list.targets.push_back(status_of(static_cast<Kind>(key >> 32U), static_cast<std::uint32_t>(key), ""));
  }
  list.counts.watched = static_cast<std::int64_t>(list.targets.size());
  list.counts.silent = std::count_if(list.targets.begin(), list.targets.end(),
                                     [](const TargetStatus& target) { return target.silent(); });
  list.counts.unmatched = static_cast<std::int64_t>(unmatched_.size());
  return list;
}

TargetCounts TargetLedger::counts() const {
  const std::lock_guard lock(mutex_);
  TargetCounts counts;
  counts.unmatched = static_cast<std::int64_t>(unmatched_.size());
  std::int64_t fired_last = 0;
  for (const auto& [key, fired] : fired_) fired_last += fired.collected == collected_ ? 1 : 0;
  const auto is_new = [&](const ExpectedTarget& one) {
    return fired_.count(key_of(one.kind, one.target)) == 0;
  };
  const auto unheard = std::count_if(expected_.begin(), expected_.end(), is_new);
  counts.watched = static_cast<std::int64_t>(fired_.size()) + unheard;
  counts.silent = collected_ == 0 ? 0 : counts.watched - fired_last;
  return counts;
}

}  // namespace gradmon

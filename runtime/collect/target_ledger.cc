// SPDX-License-Identifier: Apache-2.0
#include "runtime/collect/target_ledger.h"

#include <algorithm>
#include <new>

namespace gradmon {
namespace {

// The module or tapped name at the start of a row's name; "" for other rows.
std::string owner_name(const std::string& row) {
  std::size_t end = 0;
  for (const char* part : {".input", ".output", ".attention"}) {
    const std::size_t at = row.rfind(part);
    if (at != std::string::npos) end = std::max(end, at);
  }
  return row.substr(0, end);
}

}  // namespace

void TargetLedger::begin_plan() {
  drop_step();
  modules_.clear();
  const std::lock_guard lock(mutex_);
  state_ = {};
}

void TargetLedger::expect(std::vector<ExpectedTarget> expected, std::vector<UnmatchedTarget> unmatched) {
  const std::lock_guard lock(mutex_);
  modules_.clear();
  state_.not_fired.clear();
  state_.unmatched = std::move(unmatched);
  state_.expected.clear();
  for (ExpectedTarget& one : expected) {
    if (one.of == ExpectedTarget::Of::module)
      modules_[{names_.vpp_stage(one.target), names_.name(one.target)}] = one.target;
    if (state_.not_fired.insert(key_of(one.kind, one.target)).second)
      state_.expected.push_back(std::move(one));
  }
  for (const auto& fired : state_.fired) mark_fired(fired.first);
}

void TargetLedger::mark_fired(Key key) {
  if (state_.not_fired.erase(key) > 0 || (modules_.empty() && state_.unmatched.empty())) return;
  const auto target = static_cast<std::uint32_t>(key);
  const std::string& name = names_.name(target);
  const std::string owner = owner_name(name);
  const auto module = modules_.find({names_.vpp_stage(target), owner});
  if (module != modules_.end()) state_.not_fired.erase(key_of(static_cast<Kind>(key >> 32U), module->second));
  auto& unmatched = state_.unmatched;
  unmatched.erase(std::remove_if(unmatched.begin(), unmatched.end(),
                                 [&](const UnmatchedTarget& one) {
                                   return one.pattern == owner || one.pattern == name;  // `name`: from tap()
                                 }),
                  unmatched.end());
}

void TargetLedger::count_row(Kind kind, std::uint32_t target) noexcept {
  try {
    fired_this_step_.push_back(key_of(kind, target));
  } catch (const std::bad_alloc&) {
  }
}

void TargetLedger::note_reason(Kind kind, std::uint32_t target, std::string_view why) noexcept {
  try {
    if (!why.empty()) reasons_this_step_.emplace_back(key_of(kind, target), why);
  } catch (const std::bad_alloc&) {
  }
}

// If a whole module is silent, the module has the reason instead of its rows. Call it with mutex_ held.
void TargetLedger::keep_reasons() {
  state_.reasons.clear();
  if (!reasons_this_step_.empty()) state_.settle();
  for (auto& [key, why] : reasons_this_step_) {
    const auto fired = state_.fired.find(key);
    if (fired != state_.fired.end() && fired->second.collected == state_.collected) continue;
    const auto target = static_cast<std::uint32_t>(key);
    const std::string& name = names_.name(target);
    auto module = modules_.find({names_.vpp_stage(target), name});
    if (module == modules_.end()) module = modules_.find({names_.vpp_stage(target), owner_name(name)});
    const Key of_module =
        module == modules_.end() ? key : key_of(static_cast<Kind>(key >> 32U), module->second);
    if (of_module != key && state_.not_fired.count(of_module) > 0) {
      state_.reasons[of_module] = name + ": " + why;
    } else {
      state_.reasons[key] = std::move(why);
    }
  }
}

void TargetLedger::PlanState::settle() {
  if (repeated.step < 0) return;
  for (const Key key : last_rows) fired[key] = repeated;
  repeated = {};
}

void TargetLedger::end_step(Step step, WallTime now) noexcept {
  const std::lock_guard lock(mutex_);
  state_.collected += 1;
  try {
    const Fired fired{step.value, now, state_.collected};
    if (fired_this_step_ == state_.last_rows) {
      state_.repeated = fired;
    } else {
      state_.settle();
      state_.fired_last = 0;
      for (const Key key : fired_this_step_) {
        const auto [entry, first] = state_.fired.try_emplace(key);
        if (first) mark_fired(key);
        if (entry->second.collected != state_.collected) state_.fired_last += 1;
        entry->second = fired;
      }
      state_.last_rows.swap(fired_this_step_);
    }
    keep_reasons();
  } catch (const std::bad_alloc&) {
  }
  drop_step();
}

TargetStatus TargetLedger::make_status(const PlanState& state, Key key, const std::string& why) const {
  const auto target = static_cast<std::uint32_t>(key);
  TargetStatus status;
  status.kind = name_of(static_cast<Kind>(key >> 32U));
  status.name = with_stage(names_.vpp_stage(target), names_.name(target));
  const auto found = state.fired.find(key);
  const Fired fired = found == state.fired.end() ? Fired{} : found->second;
  status.last_step = fired.step;
  status.last_at = fired.at;
  status.silent_steps = state.collected - fired.collected;
  const auto reason = state.reasons.find(key);
  if (status.silent()) status.why = reason == state.reasons.end() ? why : reason->second;
  return status;
}

TargetCounts TargetLedger::count_targets(const PlanState& state) {
  TargetCounts counts;
  counts.watched = static_cast<std::int64_t>(state.fired.size() + state.not_fired.size());
  counts.silent = state.collected == 0 ? 0 : counts.watched - state.fired_last;
  counts.unmatched = static_cast<std::int64_t>(state.unmatched.size());
  return counts;
}

TargetList TargetLedger::list() const {
  PlanState state = [this] {
    const std::lock_guard lock(mutex_);
    return state_;
  }();
  state.settle();
  TargetList list;
  list.counts = count_targets(state);
  list.unmatched = state.unmatched;
  std::unordered_set<Key> listed;
  for (const ExpectedTarget& one : state.expected) {
    const Key key = key_of(one.kind, one.target);
    if (state.not_fired.count(key) + state.fired.count(key) == 0) continue;  // Its rows are listed instead.
    list.targets.push_back(make_status(state, key, one.why));
    listed.insert(key);
  }
  std::vector<Key> others;
  for (const auto& fired : state.fired) {
    if (listed.count(fired.first) == 0) others.push_back(fired.first);
  }
  std::sort(others.begin(), others.end());
  for (const Key key : others) list.targets.push_back(make_status(state, key, ""));
  return list;
}

std::vector<UnmatchedTarget> TargetLedger::unmatched() const {
  const std::lock_guard lock(mutex_);
  return state_.unmatched;
}

TargetCounts TargetLedger::counts() const {
  const std::lock_guard lock(mutex_);
  return count_targets(state_);
}

}  // namespace gradmon

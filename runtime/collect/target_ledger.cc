// SPDX-License-Identifier: Apache-2.0
#include "runtime/collect/target_ledger.h"

#include <algorithm>
#include <new>

namespace gradmon {
namespace {

// The module or tapped name at the start of a row's name; "" for other rows.
std::string owner_of(const std::string& row) {
  std::size_t end = 0;
  for (const char* part : {".input", ".output", ".attention"}) {
    const std::size_t at = row.rfind(part);
    if (at != std::string::npos) end = std::max(end, at);
  }
  return row.substr(0, end);
}

}  // namespace

void TargetLedger::begin_plan() {
  seen_.clear();
  modules_.clear();
  const std::lock_guard lock(mutex_);
  known_ = {};
}

void TargetLedger::expect(std::vector<ExpectedTarget> expected, std::vector<UnmatchedTarget> unmatched) {
  const std::lock_guard lock(mutex_);
  modules_.clear();
  known_.unheard.clear();
  known_.unmatched = std::move(unmatched);
  known_.expected.clear();
  for (ExpectedTarget& one : expected) {
    if (one.of == ExpectedTarget::Of::module)
      modules_[{names_.vpp_stage(one.target), names_.name(one.target)}] = one.target;
    if (known_.unheard.insert(key_of(one.kind, one.target)).second) known_.expected.push_back(std::move(one));
  }
  for (const auto& fired : known_.fired) hear(fired.first);
}

void TargetLedger::hear(Key key) {
  if (known_.unheard.erase(key) > 0 || (modules_.empty() && known_.unmatched.empty())) return;
  const auto target = static_cast<std::uint32_t>(key);
  const std::string owner = owner_of(names_.name(target));
  const auto module = modules_.find({names_.vpp_stage(target), owner});
  if (module != modules_.end()) known_.unheard.erase(key_of(static_cast<Kind>(key >> 32U), module->second));
  auto& unmatched = known_.unmatched;
  unmatched.erase(std::remove_if(unmatched.begin(), unmatched.end(),
                                 [&](const UnmatchedTarget& one) { return one.pattern == owner; }),
                  unmatched.end());
}

void TargetLedger::see(Kind kind, std::uint32_t target) noexcept {
  try {
    seen_.push_back(key_of(kind, target));
  } catch (const std::bad_alloc&) {
  }
}

void TargetLedger::end_step(Step step, WallTime now) noexcept {
  const std::lock_guard lock(mutex_);
  known_.collected += 1;
  known_.fired_last = 0;
  try {
    for (const Key key : seen_) {
      const auto [fired, first] = known_.fired.try_emplace(key);
      if (first) hear(key);
      if (fired->second.collected != known_.collected) known_.fired_last += 1;
      fired->second = {step.value, now, known_.collected};
    }
  } catch (const std::bad_alloc&) {
  }
  seen_.clear();
}

TargetStatus TargetLedger::status_of(const Known& known, Key key, const std::string& why) const {
  const auto target = static_cast<std::uint32_t>(key);
  TargetStatus status;
  status.kind = name_of(static_cast<Kind>(key >> 32U));
  const int stage = names_.vpp_stage(target);
  status.name = (stage == 0 ? "" : std::to_string(stage) + ":") + names_.name(target);
  const auto found = known.fired.find(key);
  const Fired fired = found == known.fired.end() ? Fired{} : found->second;
  status.last_step = fired.step;
  status.last_at = fired.at;
  status.silent_steps = known.collected - fired.collected;
  if (status.silent()) status.why = why;
  return status;
}

TargetCounts TargetLedger::counts_of(const Known& known) {
  TargetCounts counts;
  counts.watched = static_cast<std::int64_t>(known.fired.size() + known.unheard.size());
  counts.silent = known.collected == 0 ? 0 : counts.watched - known.fired_last;
  counts.unmatched = static_cast<std::int64_t>(known.unmatched.size());
  return counts;
}

TargetList TargetLedger::list() const {
  const Known known = [this] {
    const std::lock_guard lock(mutex_);
    return known_;
  }();
  TargetList list;
  list.counts = counts_of(known);
  list.unmatched = known.unmatched;
  std::unordered_set<Key> listed;
  for (const ExpectedTarget& one : known.expected) {
    const Key key = key_of(one.kind, one.target);
    if (known.unheard.count(key) + known.fired.count(key) == 0) continue;  // Its rows are listed instead.
    list.targets.push_back(status_of(known, key, one.why));
    listed.insert(key);
  }
  std::vector<Key> others;
  for (const auto& fired : known.fired) {
    if (listed.count(fired.first) == 0) others.push_back(fired.first);
  }
  std::sort(others.begin(), others.end());
  for (const Key key : others) list.targets.push_back(status_of(known, key, ""));
  return list;
}

std::vector<UnmatchedTarget> TargetLedger::unmatched() const {
  const std::lock_guard lock(mutex_);
  return known_.unmatched;
}

TargetCounts TargetLedger::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_of(known_);
}

}  // namespace gradmon

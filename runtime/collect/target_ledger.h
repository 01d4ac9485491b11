// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "control/agree/target_status.h"
#include "control/step.h"
#include "writers/queue/name_table.h"
#include "writers/queue/record.h"

namespace gradmon {

// Expected in every collected step: one row, or at least one row of a module (`{module}.input…`,
// `{module}.output…`). Once a module has fired, its rows are listed instead of the module.
struct ExpectedTarget {
  enum class Of : std::uint8_t { row, module };
  Kind kind = Kind::other;
  std::uint32_t target = 0;  // id in the name table
  const char* why = "";      // reason to show while the target is silent
  Of of = Of::row;
  std::shared_ptr<const void> keeps_why = {};  // null: the text is constant
};

// Tracks the targets that a plan watches: those that have fired, with the last time, and those that have not.
// Also lists rows that were not expected.
class TargetLedger {
 public:
  // `names` must outlive the ledger.
  explicit TargetLedger(const NameTable& names) : names_(names) {}

  // Training thread. begin_plan(): at each swap of plans; clears the ledger. expect(): each time the hooks of
  // a plan have attached; replaces the expected targets, keeps the fired ones. A target that is given twice
  // counts once.
  void begin_plan();
  void expect(std::vector<ExpectedTarget> expected, std::vector<UnmatchedTarget> unmatched);
  // Training thread, in a collected step. count_row(): a row was made. note_reason(): the reason why the
  // target has no row, shown while the target, or its module, is silent. Both are ignored if out of memory.
  // drop_step(): instead of end_step() for a step that does not count.
  void count_row(Kind kind, std::uint32_t target) noexcept;
  void note_reason(Kind kind, std::uint32_t target, std::string_view why) noexcept;
  void end_step(Step step, WallTime now) noexcept;
  void drop_step() noexcept {
    fired_this_step_.clear();
    reasons_this_step_.clear();
  }

  // Any thread. The expected targets in their order, then the others.
  TargetList list() const;
  // Any thread. A name that the program has used with tap() or attention() is no longer unmatched.
  std::vector<UnmatchedTarget> unmatched() const;
  TargetCounts counts() const;

 private:
  struct Fired {
    std::int64_t step = -1;
    WallTime at = 0;
    std::int64_t collected = 0;  // number of collected steps up to this one
  };
  using Key = std::uint64_t;
  static Key key_of(Kind kind, std::uint32_t target) { return (static_cast<Key>(kind) << 32U) | target; }
  // State under the plan in force.
  struct PlanState {
    std::vector<ExpectedTarget> expected;
    std::vector<UnmatchedTarget> unmatched;
    std::unordered_set<Key> not_fired;  // expected and not fired yet
    std::unordered_map<Key, Fired> fired;
    std::unordered_map<Key, std::string> reasons;  // of the last step
    std::int64_t collected = 0;                    // steps
    std::int64_t fired_last = 0;                   // number of targets that fired in the last step
    // The rows of the last step in their order. Most steps have the same rows: those then have `repeated`
    // instead of their entries in `fired`, until settle().
    std::vector<Key> last_rows;
    Fired repeated;

    void settle();
  };
  void mark_fired(Key key);
  void keep_reasons();
  TargetStatus make_status(const PlanState& state, Key key, const std::string& why) const;
  static TargetCounts count_targets(const PlanState& state);

  const NameTable& names_;  // own synchronisation
  // Training thread only.
  std::vector<Key> fired_this_step_;
  std::vector<std::pair<Key, std::string>> reasons_this_step_;
  std::map<std::pair<int, std::string>, std::uint32_t> modules_;  // expected, by stage and name

  mutable std::mutex mutex_;
  PlanState state_;  // guarded by mutex_
};

}  // namespace gradmon

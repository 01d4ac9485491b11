// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "control/agree/target_status.h"
#include "control/step.h"
#include "writers/queue/name_table.h"
#include "writers/queue/record.h"

namespace gradmon {

// What every collected step is expected to have: a row, or of a module any row
// (`{module}.input…`, `{module}.output…`), which then stands for itself.
struct ExpectedTarget {
  enum class Of : std::uint8_t { row, module };
  Kind kind = Kind::other;
  std::uint32_t target = 0;  // id in the name table
  std::string why;           // it is silent, where it is
  Of of = Of::row;
};

// What has become of the targets that a plan watches: which have fired, when
// last, and which not. Rows that nobody expected are told as well.
class TargetLedger {
 public:
  // `names` outlives it.
  explicit TargetLedger(const NameTable& names) : names_(names) {}

  // The training thread: another plan is in force, or none; hooks have attached
  // (any number of times under a plan). What is expected twice counts once.
  void begin_plan();
  void expect(std::vector<ExpectedTarget> expected, std::vector<UnmatchedTarget> unmatched);
  // The training thread, in a collected step: a row has been made. Where there is
  // no memory it is not told.
  void see(Kind kind, std::uint32_t target) noexcept;
  void end_step(Step step, WallTime now) noexcept;

  // Any thread. Those expected in their order, then the others.
  TargetList list() const;
  // A name that a program has tapped or attended by is no longer one of these.
  std::vector<UnmatchedTarget> unmatched() const;
  TargetCounts counts() const;

 private:
  struct Fired {
    std::int64_t step = -1;
    WallTime at = 0;
    std::int64_t collected = 0;  // steps by then
  };
  using Key = std::uint64_t;
  static Key key_of(Kind kind, std::uint32_t target) { return (static_cast<Key>(kind) << 32U) | target; }
  // Under a plan.
  struct Known {
    std::vector<ExpectedTarget> expected;
    std::vector<UnmatchedTarget> unmatched;
    std::unordered_set<Key> unheard;  // of those expected
    std::unordered_map<Key, Fired> fired;
    std::int64_t collected = 0;   // steps
    std::int64_t fired_last = 0;  // targets, in the last of these
  };
  void hear(Key key);
  TargetStatus status_of(const Known& known, Key key, const std::string& why) const;
  static TargetCounts counts_of(const Known& known);

  const NameTable& names_;  // own synchronisation
  // The training thread's.
  std::vector<Key> seen_;                                         // in this step
  std::map<std::pair<int, std::string>, std::uint32_t> modules_;  // expected, by stage and name

  mutable std::mutex mutex_;
  Known known_;  // guarded by mutex_
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "control/agree/target_status.h"
#include "control/step.h"
#include "writers/name_table.h"
#include "writers/record.h"

namespace gradmon {

// A row that every collected step is expected to have.
struct ExpectedTarget {
  Kind kind = Kind::other;
  std::uint32_t target = 0;  // id in the name table
  std::string why;           // it is silent, where it is
};

// What has become of the targets that a plan watches: which have fired, when
// last, and which not. Rows that nobody expected are told as well.
class TargetLedger {
 public:
  // `names` outlives it.
  explicit TargetLedger(const NameTable& names) : names_(names) {}

  // The training thread: another plan is in force, or none; hooks have attached
  // (any number of times under a plan).
  void begin_plan();
  void expect(std::vector<ExpectedTarget> expected, std::vector<UnmatchedTarget> unmatched);
  // The training thread, in a collected step: a row is on its way. Where there is
  // no memory it is not told.
  void see(Kind kind, std::uint32_t target) noexcept;
  void end_step(Step step, WallTime now) noexcept;

  // Any thread. Those expected in their order, then the others.
  TargetList list() const;
  TargetCounts counts() const;

 private:
  struct Fired {
    std::int64_t step = -1;
    WallTime at = 0;
    std::int64_t collected = 0;  // steps by then
  };
  using Key = std::uint64_t;
  static Key key_of(Kind kind, std::uint32_t target) { return (static_cast<Key>(kind) << 32U) | target; }
  TargetStatus status_of(Kind kind, std::uint32_t target, const std::string& why) const;

  const NameTable& names_;                            // own synchronisation
  std::vector<std::pair<Kind, std::uint32_t>> seen_;  // in this step; the training thread's

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<ExpectedTarget> expected_;
  std::vector<UnmatchedTarget> unmatched_;
  std::unordered_map<Key, Fired> fired_;
  std::int64_t collected_ = 0;  // steps under this plan
};

}  // namespace gradmon

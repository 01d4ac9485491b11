// SPDX-License-Identifier: Apache-2.0
// What a rank watches under a plan, and whether it fires. Values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "control/agree/wall_time.h"

namespace gradmon {

struct Plan;

// A name or pattern of the config that matches nothing here.
struct UnmatchedTarget {
  std::string pattern;
  std::vector<std::string> nearest;  // names that it may mean
  std::string error;                 // why it can match nothing; "" where it could
};

// For people: "\"blok\" matches nothing (nearest: blocks)".
std::string sentence(const UnmatchedTarget& unmatched);

// A sentence for each, as far as that takes 16 KiB, and one that counts the rest.
std::vector<std::string> sentences(const std::vector<UnmatchedTarget>& unmatched);

// One kind of record of one watched name.
struct TargetStatus {
  std::string kind;               // of record, as "grad_reduced"
  std::string name;               // as records call it
  std::int64_t last_step = -1;    // the last in which it was collected; -1: none yet
  WallTime last_at = 0;           // when that was on its way to disk; 0: never
  std::int64_t silent_steps = 0;  // collected steps since then, or in all, without it
  std::string why;                // "no gradient", "frozen", "not in the graph"; "" where it is not known
  bool silent() const { return silent_steps > 0; }
};

// How many of each there are.
struct TargetCounts {
  std::int64_t watched = 0;    // targets
  std::int64_t silent = 0;     // of these
  std::int64_t unmatched = 0;  // names and patterns of the config
};

struct TargetList {
  TargetCounts counts;  // of all, listed or not
  std::vector<UnmatchedTarget> unmatched;
  std::vector<TargetStatus> targets;
  std::int64_t left_out = 0;  // of both, that are not listed
};

// What a rank watches under the plan in force (null), with what has become of
// it; or would watch under another. Called on the agent thread; quick.
using ListTargets = std::function<TargetList(const Plan*)>;

// What nobody should miss: the targets that are silent, and all that is unmatched.
TargetList noteworthy(TargetList list);
// As much of it as takes so many bytes on the wire: what is unmatched first, then
// what is silent, then the rest. Otherwise the order stays.
TargetList within(TargetList list, std::size_t most_bytes);

}  // namespace gradmon

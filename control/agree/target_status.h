// SPDX-License-Identifier: Apache-2.0
// The targets that a rank watches under a plan, and the arrival of their records. Values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gradmon/status.h"

namespace gradmon {

struct Plan;

// A name or pattern of the config that matches nothing on this rank.
struct UnmatchedTarget {
  std::string pattern;
  std::vector<std::string> nearest;  // similar names
  std::string error;                 // the reason why it is invalid; "" if it is valid
};

// For people: "\"blok\" matches nothing (nearest: blocks)".
std::string describe(const UnmatchedTarget& unmatched);

// One line for each, up to 16 KiB in all, then one line with the number of the others.
std::vector<std::string> describe_all(const std::vector<UnmatchedTarget>& unmatched);

// A target: one kind of record of one watched name.
struct TargetStatus {
  std::string kind;               // of record, such as "grad_reduced"
  std::string name;               // as in the records
  std::int64_t last_step = -1;    // the last step that recorded it; -1: none yet
  WallTime last_at = 0;           // when that step ended; 0: none yet
  std::int64_t silent_steps = 0;  // collected steps since last_step, or in all
  std::string why;                // "no gradient", "frozen", "not in the graph"; "" if unknown
  bool silent() const { return silent_steps > 0; }
};

struct TargetList {
  TargetCounts counts;  // of all entries, listed or not
  std::vector<UnmatchedTarget> unmatched;
  std::vector<TargetStatus> targets;
  std::int64_t left_out = 0;  // removed entries of both lists
  // The integrations that watch the program's models and optimizers, such as
  // "Net: gradmon.deepspeed, deepspeed 0.19.8".
  std::vector<std::string> attached;
};

// The targets that a rank watches under the plan in force (null) or would watch under another plan, with
// their state. Called on the agent thread; must return at once.
using ListTargets = std::function<TargetList(const Plan*)>;

// Keeps only the silent targets and everything unmatched.
TargetList only_silent_or_unmatched(TargetList list);
// Shortens the list to at most so many bytes on the wire. Keeps unmatched entries first, then silent targets,
// then the others, in their order. Keeps at most 4 KiB of `attached`.
TargetList within(TargetList list, std::size_t most_bytes);

// The ranks' answers to a dry run.
struct DryRunResult {
  struct Answer {
    Rank rank;
    bool known = false;  // false: the rank has not answered
    std::int64_t matches = 0;
    std::string objection;  // why the rank cannot carry out the plan; "" if it can
    TargetList targets;     // as in DryRunAnswer
  };
  std::string id;
  std::vector<Answer> answers;  // by rank; a rank that has ended or was dropped is listed only if it answered
};

}  // namespace gradmon

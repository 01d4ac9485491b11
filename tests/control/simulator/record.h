// SPDX-License-Identifier: Apache-2.0
// What was seen of a history: enough to judge it, without asking those who are
// judged what they meant.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "control/agree/plan.h"

namespace gradmon {

// One process of one rank.
struct Conduct {
  // It went on past its own promise, as it may after fence_timeout.
  struct Breach {
    Revision revision;  // it had promised to wait for; 0: the one at the start
    Step step;
  };

  std::string id;
  Step start;
  std::vector<std::uint32_t> ran;       // by step − start: under which revision
  std::vector<std::int64_t> collected;  // steps
  std::vector<std::pair<Revision, Step>> applied;
  std::set<std::uint64_t> missed;  // revisions of which it said so
  std::vector<Breach> breaches;
  Revision closed;  // newest it knew to be decided, when last seen
  // Where it died, or lost its place: what had been decided by then. Its rank
  // runs the steps again, and later verdicts are about those.
  std::optional<Revision> bound;
};

// One epoch.
struct LaunchRecord {
  std::string epoch;
  Step start;
  std::map<std::uint64_t, Verdict> verdicts;  // what the register holds
  std::vector<const Conduct*> processes;
};

// "" where everything in it is as promised, else what is not.
std::string judge(const LaunchRecord& launch);

}  // namespace gradmon

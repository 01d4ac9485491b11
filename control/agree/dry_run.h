// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "control/agree/membership.h"

namespace gradmon {

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

// The dry runs under way. Each asks all ranks how many targets a plan would match (without a plan: how many
// they watch now). A dry run changes nothing. It ends when all present ranks have answered, or after two
// seconds. One thread.
class DryRuns {
 public:
  // Does nothing if a dry run with that id is under way. Above sixteen the oldest is dropped without
  // an answer.
  void ask(std::string id, PlanPtr plan, Ticks now);
  void on_dry_run_answer(Rank rank, const DryRunAnswer& answer);
  // The questions that are due now, each with at least one rank to ask.
  std::vector<std::pair<std::vector<int>, DryRun>> due(const Membership& members, Ticks now);
  // Removes and returns the dry runs that have ended.
  std::vector<DryRunResult> take_ended(const Membership& members, Ticks now);
  bool busy() const { return !open_.empty(); }

 private:
  struct OpenDryRun {
    std::string id;
    PlanPtr plan;
    Ticks begun{};
    std::optional<Ticks> asked;  // last time
    std::map<int, DryRunAnswer> answers;
  };

  std::vector<OpenDryRun> open_;  // oldest first
};

}  // namespace gradmon

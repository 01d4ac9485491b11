// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "control/agree/membership.h"

namespace gradmon {

// What each rank has said that a plan would mean there, or that it watches now.
struct DryRunResult {
  struct Answer {
    Rank rank;
    bool known = false;  // false: the rank has not answered
    std::int64_t matches = 0;
    std::string objection;  // why the rank could not carry it out; "" where it could
    TargetList targets;     // as in DryRunAnswer
  };
  std::string id;
  std::vector<Answer> answers;  // by rank
};

// Questions of "what would this plan mean?" (without a plan: "what do you
// watch?") to all ranks: nothing is promised
// and nothing changes. Each ends when all ranks that are there have answered,
// or after two seconds. One thread.
class DryRuns {
 public:
  // A question already open with that id goes on. Beyond sixteen the oldest is
  // dropped without an answer.
  void ask(std::string id, PlanPtr plan, Ticks now);
  void on_dry_run_answer(Rank rank, const DryRunAnswer& answer);
  // The questions that are due, by rank.
  std::vector<std::pair<int, DryRun>> due(const Membership& members, Ticks now);
  // Those that have ended; they are forgotten.
  std::vector<DryRunResult> take_ended(const Membership& members, Ticks now);
  bool busy() const { return !open_.empty(); }

 private:
  struct Question {
    std::string id;
    PlanPtr plan;
    Ticks begun{};
    std::optional<Ticks> asked;  // last time
    std::map<int, DryRunAnswer> answers;
  };

  std::vector<Question> open_;  // oldest first
};

}  // namespace gradmon

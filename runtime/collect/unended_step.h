// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

#include "control/step.h"

namespace gradmon {

// Notices that training continues, or a switch waits, while no step ends: a captured or compiled optimizer
// step does not call gradmon, so the step number does not change and a switch never comes. Pure. One thread;
// the caller passes the time.
class UnendedStep {
 public:
  using Time = std::chrono::steady_clock::time_point;

  static constexpr std::chrono::seconds kPending{60};  // a switch waits for the step
  static constexpr std::chrono::minutes kCollecting{10};
  static constexpr std::int64_t kPasses = 64;  // or four times the known accumulation, if that is more
  static constexpr std::int64_t kAccumulations = 4;

  struct Seen {
    Step current;
    bool switch_pending = false;  // a committed plan waits for its step
    bool collecting = false;      // a plan that is on is in force
    std::int64_t passes = 0;      // TrainingPasses::training()
    std::int64_t evaluations = 0;
  };

  // `accumulation`: micro batches of a step; 1: unknown.
  UnendedStep(Rank rank, std::int64_t accumulation)
      : rank_(rank), most_passes_(std::max(kPasses, kAccumulations * accumulation)) {}

  // The sentence for users; "" as long as steps end. Call it often. The sentence holds until the next step.
  const std::string& look(const Seen& seen, Time now);

 private:
  std::string sentence(const std::string& since) const;

  const Rank rank_;
  const std::int64_t most_passes_;
  bool looked_ = false;
  Step current_;
  Time moved_;          // the step began
  Time pending_since_;  // a switch waits
  bool pending_ = false;
  std::string found_;
};

}  // namespace gradmon

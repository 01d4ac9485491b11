// SPDX-License-Identifier: Apache-2.0
// Comparisons on a machine that others use: what is compared runs in turns, so
// that whatever disturbs hits all alike, and is compared turn by turn.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace gradmon {

// What is timed, and what comes before it unseen by the clock (may be empty).
struct Task {
  std::function<void()> run;
  std::function<void()> prepare;
};

// What is counted: time as it passes, or what this thread alone spends on a
// processor, which others do not lengthen.
enum class TimeBase { wall, thread };

// Seconds, by task and round.
struct Rounds {
  std::vector<std::vector<double>> seconds;

  // Of each round, how often the time of task `under` goes into that of task `over`.
  std::vector<double> ratios(std::size_t over, std::size_t under) const;
};

// Runs every task once unmeasured, and then so many rounds: A B, B A, A B …
Rounds interleave(int rounds, TimeBase spent, const std::vector<Task>& tasks);

}  // namespace gradmon

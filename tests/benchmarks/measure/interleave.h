// SPDX-License-Identifier: Apache-2.0
// Comparisons on a shared machine: the tasks run in turns, so that disturbances hit all
// tasks alike, and their times are compared round by round.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace gradmon {

// The timed work, and its preparation, which is not timed and may be empty.
struct Task {
  std::function<void()> run;
  std::function<void()> prepare;
};

// Wall-clock time, or the processor time of this thread, which other processes do not
// lengthen.
enum class TimeBase { wall, thread };

// The time since some moment, or the processor time of this thread.
double seconds_now(TimeBase spent);

// Seconds, by task and round.
struct Rounds {
  std::vector<std::vector<double>> seconds;

  // For each round, the time of task `over` divided by the time of task `under`.
  std::vector<double> ratios(std::size_t over, std::size_t under) const;
};

// Runs every task once without timing it, then `rounds` rounds: A B, B A, A B …
Rounds interleave(int rounds, TimeBase spent, const std::vector<Task>& tasks);

}  // namespace gradmon

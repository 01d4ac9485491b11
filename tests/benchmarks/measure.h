// SPDX-License-Identifier: Apache-2.0
// The shared parts of all benchmarks of tools/bench: figures with their goals, the spread of repeated values,
// and tasks that run in turns.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gradmon {

struct Goal {
  enum class Sense { at_most, at_least };
  Sense sense;
  double bound;
};
inline Goal at_most(double bound) { return {Goal::Sense::at_most, bound}; }
inline Goal at_least(double bound) { return {Goal::Sense::at_least, bound}; }

struct Figure {
  std::string name;
  double value = 0;
  std::string unit;
  std::optional<Goal> goal;            // nullopt: only reported
  std::string how;                     // the setting, the number of repetitions and their spread
  std::optional<bool> met = {};        // overrides the comparison with the goal
  std::optional<bool> is_met() const;  // nullopt: there is no goal
};

// A line of the table, and the whole file of --json.
std::string line_of(const Figure& figure);
std::string json_of(const std::vector<Figure>& figures);

// quick only shows that every benchmark runs; its values are not meaningful.
enum class Effort { quick, full };
template <typename T>
T pick(Effort effort, T quick, T full) {
  return effort == Effort::quick ? quick : full;
}

// A benchmark, with the names of the figures that it yields.
struct Bench {
  std::vector<std::string> yields;
  std::function<std::vector<Figure>(Effort)> run;  // throws std::exception if it cannot measure
};

// All benchmarks; each function is in the file of its name.
std::vector<Bench> training_cost();   // an idle monitor, and collecting in a training
std::vector<Bench> reading_cost();    // the statistics of one tensor, of attention, of a row
std::vector<Bench> agreement_time();  // changes on eight ranks, and their idle hub
std::vector<Bench> simulated_hubs();  // the agreement of thousands of ranks
std::vector<Bench> writing_rate();    // queue, files, alert rules, gradmonctl convert

// At least one measurement.
double median_of(std::vector<double> values);
std::vector<double> scaled(std::vector<double> values, double factor);

// The 95 % confidence interval of the median, for any distribution: its bounds are two of the
// sorted values. Fewer than six values give the interval of all values.
std::pair<double, double> median_interval(std::vector<double> values);

std::string text_of(double value);  // four significant digits, never scientific below 10¹⁵
std::string range_text(const std::vector<double>& values);  // minimum, median and maximum: "0.81 0.93 0.97"
// "minimum, median and maximum of 40: 0.81 0.93 0.97"
std::string spread_of(const std::vector<double>& values);
// The median of the values; `how` is followed by their spread.
Figure median_figure(std::string name, const std::vector<double>& values, std::string unit,
                     std::optional<Goal> goal, const std::string& how);

// Keeps the compiler from leaving out the computation of a value.
template <typename T>
void keep(const T& value) {
  asm volatile("" : : "r,m"(value) : "memory");
}

// Wall-clock time, or the processor time of this thread, which other processes do not lengthen.
enum class TimeBase { wall, thread };
double seconds_now(TimeBase spent);  // since some moment
double seconds_of(const std::function<void()>& task);

// The timed work, and its preparation, which is not timed and may be empty.
struct Task {
  std::function<void()> run;
  std::function<void()> prepare = {};
};

// Seconds, by task and round.
struct Rounds {
  std::vector<std::vector<double>> seconds;
  // For each round, the time of task `over` divided by the time of task `under`.
  std::vector<double> ratios(std::size_t over, std::size_t under) const;
};

// Runs every task once without timing it, then `rounds` rounds: A B, B A, A B … So a disturbance on a shared
// machine hits all tasks alike.
Rounds interleave(int rounds, TimeBase spent, const std::vector<Task>& tasks);

// The minimum cost of reading memory: loads every byte once, by vectors as wide as those of
// hooks/stats/stats_kernel, and adds them up. `data`: aligned for floats. Any thread.
void plain_read(const void* data, std::size_t bytes);

}  // namespace gradmon

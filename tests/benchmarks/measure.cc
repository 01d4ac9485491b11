// SPDX-License-Identifier: Apache-2.0
#include "tests/benchmarks/measure.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace gradmon {

std::optional<bool> Figure::is_met() const {
  if (met || !goal) return met;
  return goal->sense == Goal::Sense::at_most ? value <= goal->bound : value >= goal->bound;
}

std::string line_of(const Figure& figure) {
  std::string text = figure.name + "  " + text_of(figure.value) + " " + figure.unit;
  if (figure.goal) {
    text += figure.goal->sense == Goal::Sense::at_most ? "  (goal: at most " : "  (goal: at least ";
    text += text_of(figure.goal->bound) + ")";
  }
  if (const auto met = figure.is_met()) text += *met ? "  met" : "  MISSED";
  return text + "\n    " + figure.how;
}

std::string json_of(const std::vector<Figure>& figures) {
  using Json = nlohmann::ordered_json;
  Json all = Json::array();
  for (const Figure& figure : figures) {
    const auto met = figure.is_met();
    all.push_back({{"name", figure.name},
                   {"value", figure.value},
                   {"unit", figure.unit},
                   {"goal", figure.goal ? Json(figure.goal->bound) : Json()},
                   {"met", met ? Json(*met) : Json()},
                   {"how", figure.how}});
  }
  return Json{{"figures", all}}.dump(2) + "\n";
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

std::vector<double> scaled(std::vector<double> values, double factor) {
  for (double& value : values) value *= factor;
  return values;
}

std::pair<double, double> median_interval(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  // The number of values below the median is binomial(n, 1/2); its normal approximation, rounded outwards.
  const auto below = static_cast<std::ptrdiff_t>(std::floor((n - 1) / 2 - 0.98 * std::sqrt(n)));
  const auto cut = static_cast<std::size_t>(std::max<std::ptrdiff_t>(0, below));
  return {values[cut], values[values.size() - 1 - cut]};
}

std::string text_of(double value) {
  char text[64];
  const double size = std::fabs(value);
  const int decimals = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : size >= 0.1 ? 3 : 5;
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

std::string range_text(const std::vector<double>& values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return text_of(*least) + " " + text_of(median_of(values)) + " " + text_of(*most);
}

std::string spread_of(const std::vector<double>& values) {
  return "minimum, median and maximum of " + std::to_string(values.size()) + ": " + range_text(values);
}

Figure median_figure(std::string name, const std::vector<double>& values, std::string unit,
                     std::optional<Goal> goal, const std::string& how) {
  return {std::move(name), median_of(values), std::move(unit), goal, how + "; " + spread_of(values)};
}

double seconds_now(TimeBase spent) {
  timespec now{};
  clock_gettime(spent == TimeBase::wall ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

double seconds_of(const std::function<void()>& task) {
  const double begin = seconds_now(TimeBase::wall);
  task();
  return seconds_now(TimeBase::wall) - begin;
}

Rounds interleave(int rounds, TimeBase spent, const std::vector<Task>& tasks) {
  Rounds done;
  done.seconds.resize(tasks.size());
  for (const Task& task : tasks) {
    if (task.prepare) task.prepare();
    task.run();
  }
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      const std::size_t turn = round % 2 == 0 ? i : tasks.size() - 1 - i;
      if (tasks[turn].prepare) tasks[turn].prepare();
      const double begin = seconds_now(spent);
      tasks[turn].run();
      done.seconds[turn].push_back(seconds_now(spent) - begin);
    }
  }
  return done;
}

std::vector<double> Rounds::ratios(std::size_t over, std::size_t under) const {
  std::vector<double> made;
  for (std::size_t round = 0; round < seconds[over].size(); ++round) {
    made.push_back(seconds[over][round] / seconds[under][round]);
  }
  return made;
}

}  // namespace gradmon

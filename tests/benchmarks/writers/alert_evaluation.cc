// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cmath>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <vector>

#include "tests/benchmarks/benches.h"
#include "tests/benchmarks/measure/range.h"
#include "writers/alerts/alert_evaluator.h"

namespace gradmon {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kRows = 5000;  // of a step: 1,000 parameters, 5 kinds

// The rows of one step; every norm is log-normal around its row's own scale.
class RandomRows {
 public:
  explicit RandomRows(ValueMask ops) : rows_(kRows) {
    for (std::uint32_t i = 0; i < kRows; ++i) {
      rows_[i].target = i;
      rows_[i].kind = Kind::grad_reduced;
      rows_[i].mask = ops;
    }
  }
  const std::vector<Record>& next() {
    for (Record& row : rows_) {
      for (double& value : row.values) value = std::exp(0.2 * normal_(random_)) * (1 + row.target);
    }
    return rows_;
  }

 private:
  std::vector<Record> rows_;
  std::mt19937_64 random_{1};
  std::normal_distribution<double> normal_;
};

// Nanoseconds per value, over steps with full windows.
double ns_per_value(ValueMask ops, std::uint32_t values_per_row, int steps) {
  RandomRows rows(ops);
  AlertEvaluator evaluator;
  evaluator.set_rules({AlertRule{Anomaly::nan, 1e30}, AlertRule{Anomaly::turbulence, 1e6},
                       AlertRule{Anomaly::spike}, AlertRule{Anomaly::vanish}});
  for (int i = 0; i < 64; ++i) evaluator.evaluate({}, rows.next());
  Clock::duration spent{};
  std::size_t found = 0;
  for (int i = 0; i < steps; ++i) {
    const std::vector<Record>& step = rows.next();
    const auto begin = Clock::now();
    found += evaluator.evaluate({}, step).first.size();
    spent += Clock::now() - begin;
  }
  if (found > kRows) throw std::runtime_error("healthy series raised too many alerts");
  return std::chrono::duration<double, std::nano>(spent).count() /
         (static_cast<double>(steps) * kRows * values_per_row);
}

std::vector<Figure> measure(Effort effort) {
  const bool quick = effort == Effort::quick;
  const ValueMask six = bit_of(Op::norm) | bit_of(Op::min) | bit_of(Op::max) | bit_of(Op::mean) |
                        bit_of(Op::nans) | bit_of(Op::zeros);
  std::vector<double> norms;
  std::vector<double> all;
  for (int i = 0; i < (quick ? 2 : 15); ++i) {
    norms.push_back(ns_per_value(bit_of(Op::norm), 1, quick ? 10 : 100));
    all.push_back(ns_per_value(six, 6, quick ? 10 : 100));
  }
  Figure figure;
  figure.name = "alert_ns_per_value";
  figure.value = range_of(norms).median;
  figure.unit = "ns";
  figure.goal = Goal{Goal::Sense::at_most, 200};
  figure.how =
      "four rules, 5,000 rows a step, full windows of 64; rows of a norm alone: minimum, median and maximum "
      "of " +
      std::to_string(norms.size()) + ": " + text_of(range_of(norms)) +
      "; a value of rows with six ops: " + text_of(range_of(all));
  return {figure};
}

}  // namespace

Bench alert_evaluation() { return {{"alert_ns_per_value"}, measure}; }

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "hooks/collectives/folded_reading.h"

#include <cmath>
#include <cstddef>

namespace gradmon {
namespace {

using Values = std::array<double, kOps>;

double elements_of(const Reading& reading) {
  double elements = 1;
  for (const std::int64_t size : reading.sizes) elements *= static_cast<double>(size);
  return elements;
}

double& at(Values& values, Op op) { return values[static_cast<std::size_t>(op)]; }
double at(const Values& values, Op op) { return values[static_cast<std::size_t>(op)]; }

double less(double a, double b) { return std::isnan(a) || a < b ? a : b; }
double greater(double a, double b) { return std::isnan(a) || a > b ? a : b; }

void fold(Values& all, double before, const Values& one, double elements) {
  const double share = elements / (before + elements);
  const auto weighted = [&](Op op) { return at(all, op) * (1 - share) + at(one, op) * share; };
  at(all, Op::min) = less(at(all, Op::min), at(one, Op::min));
  at(all, Op::max) = greater(at(all, Op::max), at(one, Op::max));
  at(all, Op::norm) = std::hypot(at(all, Op::norm), at(one, Op::norm));
  at(all, Op::mean) = weighted(Op::mean);
  at(all, Op::zeros) = weighted(Op::zeros);
  at(all, Op::nans) += at(one, Op::nans);
}

}  // namespace

Reading folded(const std::vector<Reading>& readings) {
  Reading whole;
  double elements = 0;
  for (const Reading& reading : readings) {
    if (!reading.present || reading.stats.outcome == TensorStats::Outcome::empty) continue;
    if (reading.stats.outcome == TensorStats::Outcome::not_applicable) return reading;
    Values values = reading.stats.values;
    const double own = elements_of(reading);
    if (whole.present) {
      const Values one = values;
      values = whole.stats.values;
      fold(values, elements, one, own);
    }
    whole = reading;
    whole.stats.values = values;
    elements += own;
  }
  return whole;
}

}  // namespace gradmon

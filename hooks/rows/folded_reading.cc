// SPDX-License-Identifier: Apache-2.0
#include "hooks/rows/folded_reading.h"

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

double less(double a, double b) { return std::isnan(a) || a < b ? a : b; }
double greater(double a, double b) { return std::isnan(a) || a > b ? a : b; }

// `share`: the elements of `b`, divided by the elements of both.
double fold(Fold how, double a, double b, double share) {
  switch (how) {
    case Fold::least:
      return less(a, b);
    case Fold::greatest:
      return greater(a, b);
    case Fold::sum:
      return a + b;
    case Fold::mean_by_elements:
      return a * (1 - share) + b * share;
    case Fold::root_of_squares:
      return std::isnan(a) ? a : std::isnan(b) ? b : std::hypot(a, b);  // hypot(inf, NaN) is inf
  }
  return a;
}

void fold(Values& all, double before, const Values& one, double elements) {
  const double share = elements / (before + elements);
  for (std::size_t op = 0; op < kOps; ++op) all[op] = fold(kStatistics[op].fold, all[op], one[op], share);
}

}  // namespace

Reading folded(const std::vector<Reading>& readings) {
  Reading whole;
  double elements = 0;
  for (const Reading& reading : readings) {
    if (!reading.has_value || reading.stats.outcome == TensorStats::Outcome::empty) continue;
    if (reading.stats.outcome == TensorStats::Outcome::not_applicable) return reading;
    Values values = reading.stats.values;
    const double own = elements_of(reading);
    const std::int64_t read_at = whole.has_value ? whole.read_at : reading.read_at;
    if (whole.has_value) {
      const Values one = values;
      values = whole.stats.values;
      fold(values, elements, one, own);
    }
    whole = reading;
    whole.stats.values = values;
    whole.read_at = read_at;
    elements += own;
  }
  return whole;
}

}  // namespace gradmon

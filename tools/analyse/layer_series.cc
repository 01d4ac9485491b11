// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/layer_series.h"

#include <algorithm>
#include <cmath>

namespace gradmon {
namespace {

constexpr double kNothing = 1e-6;  // of the largest size before

template <std::size_t N>
double median_of(std::array<double, N> values, std::size_t count) {
  std::sort(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count));
  return values[count / 2];
}

}  // namespace

std::optional<double> size_of(const Row& row) {
  if (row.has(field_of(Op::norm))) return std::fabs(row.values[field_of(Op::norm)]);
  std::optional<double> extreme;
  for (Field field = 0; field < kOps; ++field) {
    const Fold fold = kStatistics[field].fold;
    if (!row.has(field) || (fold != Fold::least && fold != Fold::greatest)) continue;
    const double size = std::fabs(row.values[field]);
    if (!extreme || std::isnan(size) || size > *extreme) extreme = size;
    if (std::isnan(*extreme)) return extreme;
  }
  if (extreme) return extreme;
  for (const Field field : {kKernelNormField, field_of(Op::mean)}) {
    if (row.has(field)) return std::fabs(row.values[field]);
  }
  return std::nullopt;
}

void LayerSeries::add(std::int64_t step, double size) {
  if (!std::isfinite(size) || step < step_) return;
  if (step > step_) {
    end_step();
    step_ = step;
    step_size_ = size;
  }
  step_size_ = std::max(step_size_, size);
}

void LayerSeries::end() { end_step(); }

void LayerSeries::end_step() {
  if (step_ < 0 || step_ == last_step_) return;
  const double floor = kNothing * largest_;
  if (steps_ > 0 && largest_ > 0) {
    const double before = std::max(last_size_, floor);
    const double after = std::max(step_size_, floor);
    const double factor = std::max(after / before, before / after);
    if (factor > largest_change_.factor)
      largest_change_ = {factor, last_step_, step_, last_size_, step_size_};
  }
  if (step_size_ > floor) {
    dead_steps_ = 0;
  } else if (++dead_steps_ == 1) {
    dead_since_ = step_;
  }
  if (steps_ < kEarly) early_[steps_] = step_size_;
  late_[steps_ % kLate] = step_size_;
  largest_ = std::max(largest_, step_size_);
  last_size_ = step_size_;
  last_step_ = step_;
  ++steps_;
}

double LayerSeries::growth() const {
  if (steps_ <= kLate) return 1;
  const double early = median_of(early_, std::min<std::size_t>(kEarly, steps_ - kLate));
  const double late = median_of(late_, kLate);
  return early > 0 ? late / early : 1;
}

}  // namespace gradmon

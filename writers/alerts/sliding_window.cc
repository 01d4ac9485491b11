// SPDX-License-Identifier: Apache-2.0
#include "writers/alerts/sliding_window.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "control/alert_rule.h"

namespace gradmon {
namespace {

static_assert(kLongestWindow - 1 <= std::numeric_limits<std::uint8_t>::max(),
              "the number of a slot is a byte");

}  // namespace

void SlidingWindow::add(double value) {
  if (!block_) {
    const std::size_t slots = length_ + (length_ + sizeof(double) - 1) / sizeof(double);
    block_ = std::make_unique<double[]>(slots);
    ring_ = block_.get();
    order_ = reinterpret_cast<std::uint8_t*>(ring_ + length_);
  }
  const auto slot = static_cast<std::uint8_t>(next_);
  std::uint8_t* end = order_ + size_;
  if (size_ == length_) {
    auto* const oldest = static_cast<std::uint8_t*>(std::memchr(order_, slot, size_));
    std::copy(oldest + 1, end, oldest);
    --end;
  } else {
    ++size_;
  }
  const auto less = [this](std::uint8_t a, double b) { return ring_[a] < b; };
  std::uint8_t* const place = std::lower_bound(order_, end, value, less);
  std::copy_backward(place, end, end + 1);
  *place = slot;
  ring_[slot] = value;
  next_ = static_cast<std::uint16_t>(slot + 1 == length_ ? 0 : slot + 1);
}

double SlidingWindow::operator[](std::int64_t index) const {
  const std::int64_t oldest = size_ == length_ ? next_ : 0;
  return ring_[(oldest + index) % length_];
}

double SlidingWindow::median() const {
  const std::size_t half = size_ / 2U;
  return size_ % 2U == 1 ? sorted(half) : (sorted(half - 1) + sorted(half)) / 2;
}

// The deviations below the median and those above it are each sorted: merges them up to the middle.
double SlidingWindow::median_deviation() const {
  const double center = median();
  const std::size_t half = size_ / 2U;
  std::size_t below = half;  // the next one below the median is at below − 1
  std::size_t above = half;
  double last = 0;
  double before_last = 0;
  for (std::size_t taken = 0; taken <= half; ++taken) {
    before_last = last;
    const bool take_above =
        above < size_ && (below == 0 || sorted(above) - center <= center - sorted(below - 1));
    last = take_above ? sorted(above++) - center : center - sorted(--below);
  }
  return size_ % 2U == 1 ? last : (before_last + last) / 2;
}

// At most size / 2 − 1 values lie between these two. Only those values can have a smaller deviation than the
// nearer of the two.
double SlidingWindow::least_median_deviation() const {
  const double center = median();
  const std::size_t low = size_ / 4U;
  const std::size_t high = low + size_ / 2U;
  return std::min(center - sorted(low), sorted(high) - center);
}

}  // namespace gradmon

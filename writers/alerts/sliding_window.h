// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace gradmon {

// The last `length` values of a series, with their median. Allocates once, at the first add(). One thread.
class SlidingWindow {
 public:
  // `length`: kShortestWindow to kLongestWindow (control/alert_rule.h).
  explicit SlidingWindow(std::int64_t length) : length_(static_cast<std::uint16_t>(length)) {}

  // Adds a finite value; if the window is full, the oldest value leaves.
  void add(double value);

  std::int64_t length() const { return length_; }
  std::int64_t size() const { return size_; }
  // The values in the order in which they were added: 0 is the oldest.
  double operator[](std::int64_t index) const;

  // The mean of the two middle values if their number is even. size() > 0.
  double median() const;
  // The median of abs(value − median()). size() > 0.
  double median_deviation() const;
  // Not above median_deviation(), and mostly near it; reads two values, median_deviation() reads half of
  // them. size() > 0.
  double least_median_deviation() const;

 private:
  double sorted(std::size_t place) const { return ring_[order_[place]]; }

  std::uint16_t length_;
  std::uint16_t size_ = 0;
  std::uint16_t next_ = 0;           // the slot of the next value; in a full window, of the oldest one
  std::unique_ptr<double[]> block_;  // owns both of the following
  double* ring_ = nullptr;           // `length_` slots
  std::uint8_t* order_ = nullptr;    // slots by their values, ascending
};

}  // namespace gradmon

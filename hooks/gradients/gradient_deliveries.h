// SPDX-License-Identifier: Apache-2.0
// The readings of one parameter's gradient in one step; marks those that an update has used.
#pragma once

#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "hooks/rows/late_rows.h"
#include "hooks/rows/reading.h"

namespace gradmon {

// One reading of a gradient.
struct GradientDelivery {
  std::size_t parameter = 0;
  std::uint64_t arrival = 0;  // from 1: order of the first deliveries in the step
  int micro_step = 0;         // set for each_micro_batch only
  Reading reading;
};

// False also if the device has not finished yet.
inline bool has_only_zeros(const TensorStats& stats) {
  return stats.outcome == TensorStats::Outcome::measured && all_zeros(stats.values);
}

// Not thread-safe; the owner locks. Reuses its memory in every step.
class GradientDeliveries {
 public:
  void begin_step() {
    count_ = 0;
    used_.reset();
  }

  std::size_t count() const { return count_; }
  // True if an update has come in this step.
  bool updated() const { return used_.has_value(); }
  // The last delivery; null if there is none since the last update.
  GradientDelivery* unused() { return count_ > used_.value_or(0) ? &deliveries_[count_ - 1] : nullptr; }

  // Adds a delivery without a reading. Invalidates earlier references.
  GradientDelivery& add() {
    if (count_++ == deliveries_.size()) deliveries_.emplace_back();
    GradientDelivery& delivery = deliveries_[count_ - 1];
    delivery.reading.has_value = false;
    return delivery;
  }
  // An update is about to use all deliveries so far.
  void mark_used() { used_ = count_; }
  // If two deliveries exist, keeps the second one's reading and the first one's arrival.
  void keep_last_of_two() {
    if (count_ != 2) return;
    std::swap(deliveries_[0].reading, deliveries_[1].reading);
    count_ = 1;
  }

  // Passes the readings that an update has used; all readings if no update came.
  template <typename Take>
  void each_used(Take take) const {
    for (std::size_t i = 0; i < used_.value_or(count_); ++i) {
      if (deliveries_[i].reading.has_value) take(deliveries_[i]);
    }
  }

 private:
  // The first `count_` belong to this step. In place: most parameters have only one.
  c10::SmallVector<GradientDelivery, 1> deliveries_;
  std::size_t count_ = 0;
  std::optional<std::size_t> used_;  // number of used ones, from the first; unset: no update yet
};

}  // namespace gradmon

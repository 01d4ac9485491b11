// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>

namespace gradmon {

// The factors by which the program's GradScalers multiply the losses, and so the gradients, of each model
// chunk; > 0. Any thread.
class GradientScales {
 public:
  GradientScales() { set(1); }

  // Sets the factor of all chunks.
  void set(double scale) noexcept {
    for (std::atomic<double>& one : scales_) one.store(scale, std::memory_order_relaxed);
  }
  void set(int vpp_stage, double scale) noexcept {
    scales_[place_of(vpp_stage)].store(scale, std::memory_order_relaxed);
  }
  double of(int vpp_stage) const noexcept {
    return scales_[place_of(vpp_stage)].load(std::memory_order_relaxed);
  }

 private:
  static constexpr std::size_t kPlaces = 64;  // later chunks have the last place's factor

  static std::size_t place_of(int vpp_stage) noexcept {
    return std::min(static_cast<std::size_t>(std::max(0, vpp_stage)), kPlaces - 1);
  }

  std::array<std::atomic<double>, kPlaces> scales_;
};

}  // namespace gradmon

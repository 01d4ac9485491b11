// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace gradmon {

// The passes of the current step, or since its last update. They show that training continues even if no step
// ends. Hooks count them, so only in collected steps. Any thread.
class TrainingPasses {
 public:
  void begin() noexcept {
    for (auto* count : {&forwards_, &backwards_, &evaluations_}) count->store(0, std::memory_order_relaxed);
  }
  // A training forward: a model's root, in training mode, with gradients. Others count as evaluation.
  enum class Forward : bool { evaluation, training };
  void forward(Forward forward) noexcept {
    add(forward == Forward::training ? forwards_ : evaluations_);
  }
  // The first parameter that got a gradient in this step gets another one.
  void backward() noexcept { add(backwards_); }

  std::int64_t training() const noexcept {
    return std::max(forwards_.load(std::memory_order_relaxed), backwards_.load(std::memory_order_relaxed));
  }
  std::int64_t evaluations() const noexcept { return evaluations_.load(std::memory_order_relaxed); }

 private:
  using Count = std::atomic<std::int64_t>;
  static void add(Count& count) noexcept { count.fetch_add(1, std::memory_order_relaxed); }

  Count forwards_{0}, backwards_{0}, evaluations_{0};
};

}  // namespace gradmon

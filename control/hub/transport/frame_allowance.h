// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>

namespace gradmon {

// How many frames one peer may send: a token bucket, from which each frame takes one token.
class FrameAllowance {
 public:
  using Clock = std::chrono::steady_clock;

  struct Rate {
    std::size_t a_second = 0;
    std::size_t most_at_once = 0;  // tokens that a silent peer collects beyond those of one second
  };

  FrameAllowance(Rate rate, Clock::time_point now) { change(rate, now); }

  // Sets the rate and fills the bucket.
  void change(Rate rate, Clock::time_point now) {
    rate_ = static_cast<double>(rate.a_second);
    most_ = static_cast<double>(rate.a_second + rate.most_at_once);
    left_ = most_;
    at_ = now;
  }
  // False: no token is left.
  bool take(Clock::time_point now) {
    const double seconds = std::chrono::duration<double>(now - std::exchange(at_, now)).count();
    left_ = std::min(most_, left_ + seconds * rate_);
    if (left_ < 1) return false;
    left_ -= 1;
    return true;
  }
  // When take() will return true.
  Clock::time_point next() const {
    if (left_ >= 1) return at_;
    return at_ + std::chrono::ceil<Clock::duration>(std::chrono::duration<double>((1 - left_) / rate_));
  }

 private:
  double rate_ = 0;
  double most_ = 0;
  double left_ = 0;
  Clock::time_point at_;
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <set>
#include <string>
#include <utility>

namespace gradmon {

// Bounds the frames or messages that one peer may send: each takes one token out of the bucket. One thread.
class TokenBucket {
 public:
  using Clock = std::chrono::steady_clock;

  struct Rate {
    std::size_t per_second = 0;  // 0: the bucket is never refilled
    std::size_t burst = 0;       // tokens in a full bucket
  };

  TokenBucket(Rate rate, Clock::time_point now) { change(rate, now); }

  // Sets the rate and fills the bucket.
  void change(Rate rate, Clock::time_point now) {
    rate_ = static_cast<double>(rate.per_second);
    most_ = static_cast<double>(rate.burst);
    left_ = most_;
    at_ = now;
  }
  // Returns false if the bucket is empty.
  bool try_take(Clock::time_point now) {
    const double seconds = std::chrono::duration<double>(now - std::exchange(at_, now)).count();
    left_ = std::min(most_, left_ + seconds * rate_);
    if (left_ < 1) return false;
    left_ -= 1;
    return true;
  }
  // The time when try_take() will return true; Clock::time_point::max(): never.
  Clock::time_point next() const {
    if (left_ >= 1) return at_;
    if (rate_ <= 0) return Clock::time_point::max();
    return at_ + std::chrono::ceil<Clock::duration>(std::chrono::duration<double>((1 - left_) / rate_));
  }

 private:
  double rate_ = 0;
  double most_ = 0;
  double left_ = 0;
  Clock::time_point at_;
};

// Limits the log lines of one cause whose text varies: each text once, at most 100 texts, and after the first
// two texts at most one a minute. One thread.
class LogLimiter {
 public:
  using Time = std::chrono::milliseconds;  // of any monotonic clock

  // Returns true if `text` may be logged now. A later call allows a text that must wait.
  bool allows(const std::string& text, Time now) {
    if (logged_.size() >= 2 && now < next_) return false;
    if (logged_.size() == kMaxTexts || !logged_.insert(text).second) return false;
    next_ = now + std::chrono::minutes(1);
    return true;
  }

 private:
  static constexpr std::size_t kMaxTexts = 100;

  std::set<std::string> logged_;
  Time next_{};  // of the third and later texts
};

}  // namespace gradmon

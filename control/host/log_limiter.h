// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <set>
#include <string>

namespace gradmon {

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

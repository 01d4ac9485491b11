// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace gradmon {

// The launch nonce, set once Python has read it from the process group's store. Any thread.
class LaunchNonce {
 public:
  void set(std::string text) {
    const std::lock_guard lock(mutex_);
    text_ = std::move(text);
  }
  std::optional<std::string> text() const {
    const std::lock_guard lock(mutex_);
    return text_.empty() ? std::nullopt : std::optional(text_);
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;  // guarded by mutex_; "": not known yet
};

}  // namespace gradmon

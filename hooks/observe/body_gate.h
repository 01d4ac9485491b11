// SPDX-License-Identifier: Apache-2.0
// Lets the bodies of hooks in during a step, and waits for them to be out.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>

namespace gradmon {

// Any thread; opened and closed by the training thread at step boundaries.
class BodyGate {
 public:
  // Another step begins; the number of it.
  std::uint64_t open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    return ++step_;
  }

  // Nobody is let in any more, and all are out. Never within a body.
  void close() noexcept {
    std::unique_lock lock(mutex_);
    open_ = false;
    idle_.wait(lock, [&] { return inside_ == 0; });
  }

  // Runs body(number of the step), which must not throw, if the gate is open.
  template <typename Body>
  bool enter(Body&& body) noexcept {
    std::uint64_t step = 0;
    {
      const std::lock_guard lock(mutex_);
      if (!open_) return false;
      step = step_;
      ++inside_;
    }
    body(step);
    const std::lock_guard lock(mutex_);
    if (--inside_ == 0) idle_.notify_all();
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable idle_;
  // Guarded by mutex_.
  std::uint64_t step_ = 0;
  bool open_ = false;
  int inside_ = 0;  // bodies that have begun and not ended
};

}  // namespace gradmon

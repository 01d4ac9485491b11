// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/record_function.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>

namespace gradmon {

// Admits hook bodies during a step, and waits at its end until all have returned. Any thread. The training
// thread calls open() and close() at step boundaries.
class HookGate {
 public:
  // Begins the next step. Returns its number.
  std::uint64_t open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    return ++step_;
  }

  // Admits no further body and waits until the running bodies have returned. Never call it within a body.
  void close() noexcept {
    std::unique_lock lock(mutex_);
    open_ = false;
    idle_.wait(lock, [&] { return running_ == 0; });
  }

  // If the gate is open, calls body(number of the step) and returns true. The body must not throw.
  template <typename Body>
  bool enter(Body&& body) noexcept {
    std::uint64_t step = 0;
    {
      const std::lock_guard lock(mutex_);
      if (!open_) return false;
      step = step_;
      ++running_;
    }
    body(step);
    const std::lock_guard lock(mutex_);
    if (--running_ == 0) idle_.notify_all();
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable idle_;
  // Guarded by mutex_.
  std::uint64_t step_ = 0;
  bool open_ = false;
  int running_ = 0;  // number of running bodies
};

// A global callback of torch's RecordFunction, registered while it has users. Any thread.
class SharedCallback {
 public:
  explicit SharedCallback(at::RecordFunctionCallback callback) : callback_(std::move(callback)) {}

  void add_user() {
    const std::lock_guard lock(mutex_);
    if (users_++ == 0) handle_ = at::addGlobalCallback(callback_);
  }
  void remove_user() {
    const std::lock_guard lock(mutex_);
    if (--users_ == 0) at::removeCallback(handle_);
  }

 private:
  const at::RecordFunctionCallback callback_;
  std::mutex mutex_;
  // Guarded by mutex_.
  int users_ = 0;
  at::CallbackHandle handle_ = 0;
};

}  // namespace gradmon

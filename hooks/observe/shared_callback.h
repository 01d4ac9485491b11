// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/record_function.h>

#include <mutex>
#include <utility>

namespace gradmon {

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

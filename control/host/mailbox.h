// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "control/host/wake_up.h"

namespace gradmon {

// Tasks that any thread posts to the thread of one poll loop, a rank's agent or a hub.
class Mailbox {
 public:
  using Task = std::function<void()>;

  // Any thread. After close() the task is dropped.
  void post(Task task) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return;
      tasks_.push_back(std::move(task));
    }
    wake_.wake();
  }
  // Any thread. Wakes the loop without a task, so that it checks shared state.
  void wake() const { wake_.wake(); }

  // The loop's thread only, from here on. Poll fd() for POLLIN; -1: the system had no free descriptor.
  int fd() const { return wake_.fd(); }
  // Returns after post() or wake(), or after `at_most`.
  void wait(std::chrono::milliseconds at_most) const {
    pollfd waited{wake_.fd(), POLLIN, 0};
    ::poll(&waited, 1, static_cast<int>(at_most.count()));
  }
  std::vector<Task> take() {
    wake_.clear();
    const std::lock_guard lock(mutex_);
    return std::exchange(tasks_, {});
  }
  // The loop has ended: drops the waiting tasks and all later ones.
  void close() {
    std::vector<Task> dropped;  // destroyed without the lock
    const std::lock_guard lock(mutex_);
    closed_ = true;
    dropped.swap(tasks_);
  }

 private:
  const WakeUp wake_;
  std::mutex mutex_;
  std::vector<Task> tasks_;  // guarded by mutex_
  bool closed_ = false;      // guarded by mutex_
};

}  // namespace gradmon

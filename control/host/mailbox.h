// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "control/files/descriptor.h"

namespace gradmon {

// A value that one thread gives to others. Own synchronisation.
template <class Value>
class Published {
 public:
  void set(Value value) {
    const std::lock_guard lock(mutex_);
    value_ = std::move(value);
  }
  Value get() const {
    const std::lock_guard lock(mutex_);
    return value_;
  }

 private:
  mutable std::mutex mutex_;
  Value value_;  // guarded by mutex_
};

// An eventfd by which any thread wakes a polling thread. If the system has no free descriptor, fd() is -1 and
// the polling thread wakes by its time-out only.
class WakeUp {
 public:
  WakeUp() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  WakeUp(const WakeUp&) = delete;
  WakeUp& operator=(const WakeUp&) = delete;

  int fd() const { return fd_.get(); }
  void wake() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(fd(), &one, sizeof one);
  }
  void clear() const {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t n = read(fd(), &count, sizeof count);
  }

 private:
  const Descriptor fd_;
};

// Tasks that any thread posts to the thread of one poll loop, a rank's agent or a hub.
class Mailbox : WakeUp {
 public:
  using Task = std::function<void()>;

  // Any thread. After close() the task is dropped.
  void post(Task task) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return;
      tasks_.push_back(std::move(task));
    }
    wake();
  }
  // Any thread. Wakes the loop without a task, so that it checks shared state.
  using WakeUp::wake;

  // The loop's thread only, from here on. Poll fd() for POLLIN; -1: the system had no free descriptor.
  using WakeUp::fd;
  // Returns after post() or wake(), or after `at_most`.
  void wait(std::chrono::milliseconds at_most) const {
    pollfd waited{fd(), POLLIN, 0};
    ::poll(&waited, 1, static_cast<int>(at_most.count()));
  }
  std::vector<Task> take() {
    clear();
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
  std::mutex mutex_;
  std::vector<Task> tasks_;  // guarded by mutex_
  bool closed_ = false;      // guarded by mutex_
};

}  // namespace gradmon

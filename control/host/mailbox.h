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
  using Note = std::function<void()>;

  // Any thread. A task posted after the loop has ended never runs.
  void post(Note note) {
    {
      const std::lock_guard lock(mutex_);
      notes_.push_back(std::move(note));
    }
    wake_.wake();
  }
  // Any thread. Wakes the loop without a task, so that it looks at shared state.
  void wake() const { wake_.wake(); }

  // The loop's thread only, from here on. Poll fd() for POLLIN; -1: the system had no descriptor left.
  int fd() const { return wake_.fd(); }
  // Returns after post() or wake(), or after `at_most`.
  void wait(std::chrono::milliseconds at_most) const {
    pollfd waited{wake_.fd(), POLLIN, 0};
    ::poll(&waited, 1, static_cast<int>(at_most.count()));
  }
  std::vector<Note> take() {
    wake_.clear();
    const std::lock_guard lock(mutex_);
    return std::exchange(notes_, {});
  }

 private:
  const WakeUp wake_;
  std::mutex mutex_;
  std::vector<Note> notes_;  // guarded by mutex_
};

}  // namespace gradmon

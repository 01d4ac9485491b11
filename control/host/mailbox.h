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

// What other threads want done on the agent thread.
class Mailbox {
 public:
  using Note = std::function<void()>;

  // Any thread. What is posted after the agent has gone is never run.
  void post(Note note) {
    {
      const std::lock_guard lock(mutex_);
      notes_.push_back(std::move(note));
    }
    wake_.wake();
  }
  // Any thread; makes no note: "look at what has changed".
  void wake() const { wake_.wake(); }

  // Agent thread.
  int fd() const { return wake_.fd(); }
  // Returns when there is something to take or look at, or after `at_most`.
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

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

namespace gradmon {

// A thread for file I/O on the config file or the run directory. A call into a dead network mount may hang
// for minutes, and nothing waits for it, not even the exit. So a job owns all its objects (shared_ptr),
// because the thread may outlive this object.
class DiskThread {
 public:
  using Job = std::function<void()>;

  // Watched between jobs: called when `fd()` is readable (-1: never), and at the latest after
  // `timeout()`.
  struct Watch {
    std::function<int()> fd;
    std::function<std::chrono::milliseconds()> timeout;
    Job on_event;
  };

  // `name`: of the thread, for ps and gdb; at most 15 characters.
  explicit DiskThread(const char* name = "gradmon-disk");
  // Waits at most 200 ms for the current job. Drops jobs that have not begun.
  ~DiskThread();
  DiskThread(const DiskThread&) = delete;
  DiskThread& operator=(const DiskThread&) = delete;

  // Any thread. Jobs run one after another in this order. An exception is logged and dropped.
  void post(Job job);
  // Any thread. Starts to watch, with one call at once.
  void watch(std::function<Watch()> make_on_disk_thread);
  // Any thread. Waits until all posted jobs are done. Returns false on a time-out.
  bool drain(std::chrono::milliseconds at_most);
  // Any thread. The running time of the current job; 0 without a job.
  std::chrono::milliseconds current_task_age() const;

 private:
  struct State;
  static void run(const std::shared_ptr<State>& state, const char* name);

  const std::shared_ptr<State> state_;  // own synchronisation
  // Keep last: the thread uses the state.
  std::thread thread_;
};

}  // namespace gradmon

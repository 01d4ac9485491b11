// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <tl/expected.hpp>
#include <type_traits>
#include <utility>

#include "control/host/mailbox.h"

namespace gradmon {

// The thread that touches the config file, or the run directory. A call into a dead
// network mount may hang for minutes: nobody waits for it, at exit neither. So
// whatever a job needs, it owns (shared_ptr): it may outlive this object.
class DiskThread {
 public:
  using Job = std::function<void()>;

  // What is looked after between jobs: called when `fd()` is readable (-1: never)
  // and at the latest after `patience()`.
  struct Watch {
    std::function<int()> fd;
    std::function<std::chrono::milliseconds()> patience;
    Job look;
  };

  // `name` is what ps and gdb call the thread: at most 15 characters.
  explicit DiskThread(const char* name = "gradmon-disk");
  // Waits 200 ms for the job at hand, no more; jobs not begun are dropped.
  ~DiskThread();
  DiskThread(const DiskThread&) = delete;
  DiskThread& operator=(const DiskThread&) = delete;

  // Any thread. Jobs run one after another, in this order; what one throws is
  // logged, and nobody hears of it.
  void post(Job job);
  // Any thread. Where somebody waits: `then` gets, by the mailbox, what `work`
  // returned, a tl::expected with a text as its error; what it throws is one, too.
  template <class Work, class Then>
  void ask(std::shared_ptr<Mailbox> mailbox, Work work, Then then) {
    post([mailbox = std::move(mailbox), work = std::move(work), then = std::move(then)]() mutable {
      mailbox->post(
          [then = std::move(then), outcome = attempt(work)]() mutable { then(std::move(outcome)); });
    });
  }
  // Any thread. Begins with a look.
  void watch(std::function<Watch()> make_on_disk_thread);
  // Any thread. Waits until all jobs posted before are done; false: not in time.
  bool drain(std::chrono::milliseconds at_most);
  // Any thread. How long the job or look at hand has been under way; 0: there is none.
  std::chrono::milliseconds current_task_age() const;

 private:
  struct State;
  template <class Work>
  static std::invoke_result_t<Work&> attempt(Work& work) {
    try {
      return work();
    } catch (const std::exception& error) {
      return tl::unexpected(std::string(error.what()));
    }
  }
  static void run(const std::shared_ptr<State>& state, const char* name);

  const std::shared_ptr<State> state_;  // own synchronisation
  // Keep last: it runs on the state.
  std::thread thread_;
};

}  // namespace gradmon

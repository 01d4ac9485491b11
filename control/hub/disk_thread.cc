// SPDX-License-Identifier: Apache-2.0
#include "control/hub/disk_thread.h"

#include <poll.h>
#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "control/host/mailbox.h"
#include "control/log.h"
#include "control/signals_blocked.h"

namespace gradmon {

namespace {

constexpr int kTimeoutAfterError = 1000;  // ms, if a Watch throws instead of returning its timeout

// Jobs report their own errors; exceptions stop here.
template <class Work>
void do_guarded(const Work& work) noexcept {
  try {
    work();
  } catch (const std::exception& error) {
    log_error(std::string("disk thread: ") + error.what());
  } catch (...) {
    log_error("disk thread: an unknown exception");
  }
}

}  // namespace

struct DiskThread::State {
  using Clock = std::chrono::steady_clock;

  WakeUp wake;
  std::mutex mutex;
  std::condition_variable idle;
  // Guarded by mutex.
  std::deque<Job> jobs;
  std::optional<Clock::time_point> at_work_since;
  bool stopping = false;
  bool ended = false;
  // Used by the disk thread only.
  std::optional<Watch> watch;
};

DiskThread::DiskThread(const char* name) : state_(std::make_shared<State>()) {
  const SignalsBlocked blocked;
  thread_ = std::thread([state = state_, name] { run(state, name); });
}

DiskThread::~DiskThread() {
  {
    std::unique_lock lock(state_->mutex);
    state_->stopping = true;
    state_->jobs.clear();
    state_->wake.wake();
    state_->idle.wait_for(lock, std::chrono::milliseconds(200), [&] { return state_->ended; });
    if (!state_->ended) {
      thread_.detach();
      return;
    }
  }
  thread_.join();
}

void DiskThread::post(Job job) {
  const std::lock_guard lock(state_->mutex);
  if (state_->stopping) return;
  state_->jobs.push_back(std::move(job));
  state_->wake.wake();
}

void DiskThread::watch(std::function<Watch()> make_on_disk_thread) {
  // The state outlives every job: run() holds it.
  post([state = state_.get(), make = std::move(make_on_disk_thread)] {
    state->watch = make();
    do_guarded(state->watch->on_event);
  });
}

bool DiskThread::drain(std::chrono::milliseconds at_most) {
  std::unique_lock lock(state_->mutex);
  return state_->idle.wait_for(lock, at_most, [&] { return state_->jobs.empty() && !state_->at_work_since; });
}

std::chrono::milliseconds DiskThread::current_task_age() const {
  const std::lock_guard lock(state_->mutex);
  if (!state_->at_work_since) return {};
  return std::chrono::duration_cast<std::chrono::milliseconds>(State::Clock::now() - *state_->at_work_since);
}

void DiskThread::run(const std::shared_ptr<State>& state, const char* name) {
  pthread_setname_np(pthread_self(), name);
  std::unique_lock lock(state->mutex);
  const auto work = [&](const Job& job) {
    state->at_work_since = State::Clock::now();
    lock.unlock();
    do_guarded(job);
    lock.lock();
    state->at_work_since.reset();
  };
  while (!state->stopping) {
    if (!state->jobs.empty()) {
      Job job = std::move(state->jobs.front());
      state->jobs.pop_front();
      work([&job] {
        const Job own = std::move(job);  // Destroyed here, with its captures, outside the lock.
        own();
      });
      continue;
    }
    state->idle.notify_all();
    lock.unlock();
    pollfd fds[] = {{state->wake.fd(), POLLIN, 0}, {-1, POLLIN, 0}};
    int timeout = state->watch ? kTimeoutAfterError : state->wake.fd() < 0 ? 100 : -1;
    do_guarded([&] {
      if (!state->watch) return;
      fds[1].fd = state->watch->fd();
      timeout = static_cast<int>(std::max<std::int64_t>(0, state->watch->timeout().count()));
    });
    const int ready = ::poll(fds, 2, timeout);
    const bool woken = (fds[0].revents & POLLIN) != 0;
    if (woken) state->wake.clear();
    lock.lock();
    if (state->watch && (ready == 0 || (fds[1].revents & POLLIN) != 0)) work(state->watch->on_event);
  }
  lock.unlock();
  state->watch.reset();
  lock.lock();
  state->ended = true;
  state->idle.notify_all();
}

}  // namespace gradmon

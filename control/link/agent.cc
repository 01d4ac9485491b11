// SPDX-License-Identifier: Apache-2.0
#include "control/link/agent.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "control/host/mailbox.h"
#include "control/link/agent_loop.h"
#include "control/signals_blocked.h"

namespace gradmon {

void SharedGate::notify() {
  {
    const std::lock_guard guard(mutex_);
    ++changes_;
  }
  changed_.notify_all();
}

// Waits in slices, because gradmon installs no signal handler: between slices `interrupted` checks for
// stop() and, in Python, for pending signals. The training thread measures its wait itself, because the
// agent may hang.
Opening SharedGate::begin_or_wait(Step n, const Clock& clock, const std::function<bool()>& interrupted) {
  constexpr Ticks slice{100};
  for (std::uint64_t seen = 0;;) {
    const Ticks now = clock();
    Opening opening = begin(n, now);
    if (!opening.wait) return opening;
    if (interrupted()) {
      lapse();
      return begin(n, now);
    }
    std::unique_lock guard(mutex_);
    changed_.wait_for(guard, std::clamp(opening.longest_wait, Ticks{1}, slice),
                      [&] { return changes_ != seen; });
    seen = changes_;
  }
}

Agent::Agent(AgentOptions options, SharedGate& gate, AgentCalls calls)
    : gate_(gate),
      start_iteration_(options.start_iteration),
      holds_start_(options.mode == Mode::dynamic),
      mailbox_(std::make_shared<Mailbox>()),
      view_(std::make_shared<AgentView>()),
      alerts_(std::make_shared<AlertOutbox>(mailbox_)),
      replicas_(std::make_shared<ReplicaOutbox>(mailbox_)),
      loop_(std::make_unique<AgentLoop>(std::move(options), gate, std::move(calls), mailbox_, *view_, alerts_,
                                        replicas_)) {
  const SignalsBlocked blocked;
  thread_ = std::thread([loop = loop_.get()] {
    pthread_setname_np(pthread_self(), "gradmon-agent");
    loop->run();
  });
}

Agent::~Agent() { stop(Step{-1}); }

void Agent::start() {
  // Not on the agent thread: training might reach the second step before the agent thread runs.
  if (holds_start_) gate_.hold(start_iteration_ + 1, AgentLoop::kStartWait);
  mailbox_->post([loop = loop_.get()] { loop->start(); });
}

void Agent::plan_swapped() noexcept { mailbox_->wake(); }

void Agent::rows_on_disk(Revision revision) {
  mailbox_->post([loop = loop_.get(), revision] { loop->rows_on_disk(revision); });
}

void Agent::submit(Command command) {
  mailbox_->post([loop = loop_.get(), command = std::move(command)] { loop->submit(command); });
}

void Agent::stop(Step last, std::chrono::milliseconds at_most) noexcept {
  if (!thread_.joinable()) return;
  try {
    mailbox_->post([loop = loop_.get(), last, at_most] { loop->begin_leaving(last, at_most); });
  } catch (...) {  // no memory
    loop_->end_now();
  }
  thread_.join();
  loop_->publish_stopped();
}

std::function<std::optional<JobIdentity>()> Agent::job_lookup() const {
  return [view = view_] { return view->job.get(); };
}
Status Agent::status() const { return view_->status.get(); }

}  // namespace gradmon

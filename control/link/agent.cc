// SPDX-License-Identifier: Apache-2.0
#include "control/link/agent.h"

#include <pthread.h>

#include <utility>

#include "control/host/mailbox.h"
#include "control/link/agent_loop.h"
#include "control/signals_blocked.h"

namespace gradmon {

Agent::Agent(AgentOptions options, StepGate& gate, AgentCalls calls)
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

std::optional<JobIdentity> Agent::job() const { return view_->job(); }
std::function<std::optional<JobIdentity>()> Agent::job_lookup() const {
  return [view = view_] { return view->job(); };
}
Status Agent::status() const { return view_->status(); }

}  // namespace gradmon

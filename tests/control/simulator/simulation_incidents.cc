// SPDX-License-Identifier: Apache-2.0
// Simulation: the incidents of the script.
#include <algorithm>
#include <utility>

#include "tests/control/simulator/simulation.h"

namespace gradmon {
namespace {

using std::chrono::milliseconds;
using Fault = Incident::Kind;

constexpr milliseconds kHubSeesTheEnd{3};

}  // namespace

void Simulation::begin_incident(const Incident& incident, std::uint32_t index) {
  if (trace_)
    trace_line(std::string("begins: ") + name_of(incident.kind) + " rank " + std::to_string(incident.rank) +
               " for " + std::to_string(incident.lasts));
  if (incident.kind == Fault::propose) return propose(incident);
  if (incident.kind == Fault::alert) return capture(incident);
  if (incident.kind == Fault::storm) {
    lose_ = incident.lose;
    twice_ = incident.twice;
    delay_ = incident.delay;
  } else if (incident.kind == Fault::stop_hub) {
    hub_.stopped += 1;
  } else if (incident.kind == Fault::log_fails) {
    hub_.log.failing += 1;
    hub_.log_failed = true;
  } else if (incident.kind == Fault::hub_dies) {
    if (!hub_.alive) return;
    kill_hub();
    timeline_.add(now_ + milliseconds{incident.lasts}, Event::Kind::hub_returns, 0,
                  static_cast<std::uint32_t>(incident.keeps));
    return;
  } else if (incident.kind == Fault::cancel) {
    CoordinatorActions actions;
    if (hub_runs()) hub_.coordinator->cancel("the user", actions, now_.count());
    return perform(std::move(actions));
  } else if (Process* process = living_process(incident.rank)) {
    begin_on_rank(*process, incident, index);
  }
  if (incident.lasts > 0)
    timeline_.add(now_ + milliseconds{incident.lasts}, Event::Kind::incident_ends, 0, index);
}

void Simulation::begin_on_rank(Process& process, const Incident& incident, std::uint32_t index) {
  switch (incident.kind) {
    case Fault::crash:
      return crash(process);
    case Fault::leave:
      process.to_leave = true;
      return;
    case Fault::reconnect:
      process.hub_generation = 0;
      process.member->disconnected();
      return wake(process, now_ + kHubSeesTheEnd);
    case Fault::twin:
      spawn(process.rank, process.next);
      return;
    case Fault::evict: {
      CoordinatorActions actions;
      const bool done = hub_runs() && hub_.coordinator->evict(process.rank, "the user", actions);
      // The process that holds the rank number may be an earlier one.
      const auto evicted = [&] {
        return hub_.coordinator->membership().of(process.rank.value).hello.process_id;
      };
      if (done) evicted_[evicted()] = hub_.log.failing == 0 ? std::optional(now_) : std::nullopt;
      return perform(std::move(actions));
    }
    case Fault::costs:
      process.cost += incident.cost;
      break;
    default:
      if (incident.kind != Fault::stop_trainer) process.cut_keeps = incident.keeps != 0;
      hold(process, incident.kind, 1);
  }
  process.held_by.push_back(index);
}

void Simulation::end_incident(const Incident& incident, std::uint32_t index) {
  if (trace_)
    trace_line(std::string("ends: ") + name_of(incident.kind) + " rank " + std::to_string(incident.rank));
  if (incident.kind == Fault::storm) {
    lose_ = twice_ = delay_ = 0;
  } else if (incident.kind == Fault::stop_hub) {
    hub_.stopped -= 1;
    resume_hub();
  } else if (incident.kind == Fault::log_fails) {
    hub_.log.failing -= 1;
  } else if (incident.kind == Fault::crash) {
    if (incident.rank >= script_.world) return;
    Process* dead = newest_processes_[static_cast<std::size_t>(incident.rank)];
    if (dead == nullptr || dead->alive || dead->left || dead->leave_by) return;
    const std::int64_t step = std::max(script_.first_step, dead->next.value - incident.behind);
    spawn(dead->rank, Step{step});
  } else if (incident.kind == Fault::twin) {
    for (Process& process : processes_) {
      if (process.twin && process.alive && process.rank.value == incident.rank) crash(process);
    }
  } else {
    for (Process& process : processes_) {
      const auto held = std::find(process.held_by.begin(), process.held_by.end(), index);
      if (held == process.held_by.end()) continue;
      process.held_by.erase(held);
      if (incident.kind == Fault::costs) {
        process.cost -= incident.cost;
      } else {
        hold(process, incident.kind, -1);
      }
    }
  }
}

// The rank's hub sees the connection end and reports it, unless the rank is cut off.
void Simulation::crash(Process& process) {
  if (trace_) trace_line(process.id + " ends before step " + std::to_string(process.next.value));
  Envelope gone = process.member->to_coordinator(Disconnected{});
  if (process.cut_up == 0)
    timeline_.add(now_ + kHubSeesTheEnd, Event::Kind::hub_message, 0, store(std::move(gone)));
  end_process(process);
}

void Simulation::hold(Process& process, Fault kind, int by) {
  const bool ran = process.trainer_runs();
  if (!ran) process.stopped_while_waiting += now_ - std::max(process.stopped_at, process.waiting_since);
  process.stopped_at = now_;
  if (kind == Fault::stop_trainer) process.trainer_stopped += by;
  if (kind == Fault::stop_agent) process.agent_stopped += by;
  if (kind == Fault::stop_process) process.process_stopped += by;
  if (kind == Fault::cut_up) process.cut_up += by;
  if (kind == Fault::cut_down) process.cut_down += by;
  if (by < 0 && process.alive) resume(process);
}

void Simulation::resume(Process& process) {
  if (process.cut_up == 0 && process.cut_down == 0) {
    for (const auto& [up, message] : std::exchange(process.kept, {}))
      timeline_.add(now_ + Instant{dice_.between(100, 5000)},
                    up ? Event::Kind::hub_message : Event::Kind::rank_message, process.index, message);
  }
  const bool trainer_first = dice_.chance(500);
  if (trainer_first && process.trainer_runs() && std::exchange(process.boundary_due, false))
    try_step(process);
  if (process.alive && process.agent_runs() && (process.turn_due || !process.inbox.empty())) {
    process.turn_due = false;
    for (const std::uint32_t message : std::exchange(process.inbox, {})) read(process, message);
    turn(process);
  }
  if (process.alive && process.trainer_runs() && std::exchange(process.boundary_due, false))
    try_step(process);
}

PlanPtr Simulation::plan_of(const Incident& incident) {
  auto plan = std::make_shared<Plan>();
  plan->on = incident.on != 0;
  plan->collect_times = incident.times;
  plan->step_interval = incident.interval;
  plan->max_wait = Ticks{incident.max_wait};
  if (incident.lookahead > 0) plan->lookahead = incident.lookahead;
  if (incident.later > 0) plan->at = furthest() + incident.later;
  if (incident.budget > 0) plan->max_overhead = static_cast<double>(incident.budget) / 1000;
  plan->by = "user";
  plan->request_id = "u" + std::to_string(proposals_.size());
  plan->config_sha256 = plan->request_id;
  plan->file = FileIdentity{static_cast<std::int64_t>(proposals_.size()), 1, ""};
  proposals_.push_back(incident);
  return plan;
}

// The user saves the file. The coordinator reads it at once, or when it runs again.
void Simulation::propose(const Incident& incident) {
  file_ = plan_of(incident);
  if (!hub_runs()) {
    hub_.file_due = hub_.alive;
    return;
  }
  propose_file();
}

void Simulation::propose_file() {
  hub_.file_due = false;
  changes_.push_back(file_->request_id);
  if (!file_->on) off_asked_ = OffAsked{file_->request_id, hub_.ticked};
  perform(hub_.coordinator->propose(file_, now_.count()));
  wake_hub(now_ + milliseconds{10});
}

// An alert has reached the coordinator, as JobService has it.
void Simulation::capture(const Incident& incident) {
  if (!hub_runs() || !hub_.coordinator->may_capture()) return;
  auto richer = std::make_shared<Plan>(*hub_.coordinator->committed_plan());
  richer->at = Step{0};
  richer->continues.reset();
  richer->max_overhead.reset();
  richer->request_id.clear();
  richer->collect_times = incident.times;
  richer->step_interval = incident.interval;
  richer->by = "alert " + std::to_string(captures_.size());
  richer->config_sha256 = richer->by;
  captures_.emplace(richer->config_sha256, incident);
  perform(hub_.coordinator->capture(std::move(richer), now_.count()));
  wake_hub(now_ + milliseconds{10});
}

tl::expected<std::int64_t, std::string> Simulation::can_carry_out(Rank rank, const Plan& plan) const {
  const Incident& asked = plan.file ? proposals_[static_cast<std::size_t>(plan.file->mtime_ns)]
                                    : captures_.at(plan.config_sha256);
  const bool named = asked.rank == rank.value;
  if (asked.answer == 1 && named) return tl::unexpected(std::string("it cannot"));
  if (asked.answer == 2 || (asked.answer == 3 && !named)) return 0;
  return 1;
}

}  // namespace gradmon

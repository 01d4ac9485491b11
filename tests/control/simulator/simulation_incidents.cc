// SPDX-License-Identifier: Apache-2.0
// What the script says happens to a simulated job, and what is checked of it as
// a whole.
#include <algorithm>
#include <utility>

#include "tests/control/simulator/simulation.h"

namespace gradmon {
namespace {

using std::chrono::milliseconds;
using Kind = Incident::Kind;

}  // namespace

void Simulation::begin_incident(const Incident& incident, std::uint32_t index) {
  if (tell_)
    tell_line(std::string("begins: ") + name_of(incident.kind) + " rank " + std::to_string(incident.rank) +
              " for " + std::to_string(incident.lasts));
  if (incident.kind == Kind::propose) {
    propose(incident);
    return;
  }
  if (incident.kind == Kind::relaunch) {
    relaunch(incident);
  } else if (incident.kind == Kind::storm) {
    lose_ = incident.lose;
    twice_ = incident.twice;
    delay_ = incident.delay;
  } else if (incident.rank == -1) {
    trouble_every_register(incident.kind, 1);
  } else if (Process* process = seat_of(incident.rank)) {
    if (incident.kind == Kind::crash) {
      end_process(*process);
    } else if (incident.kind == Kind::leave) {
      process->to_leave = true;
    } else if (incident.kind == Kind::costs) {
      process->cost += incident.cost;
      process->held_by.push_back(index);
    } else {
      if (incident.kind == Kind::cut_up || incident.kind == Kind::cut_down)
        process->cut_keeps = incident.keeps != 0;
      hold(*process, incident.kind, 1);
      process->held_by.push_back(index);
    }
  }
  if (incident.lasts > 0)
    timeline_.add(now_ + milliseconds{incident.lasts}, Due::Kind::incident_ends, 0, index);
}

void Simulation::end_incident(const Incident& incident) {
  if (tell_)
    tell_line(std::string("ends: ") + name_of(incident.kind) + " rank " + std::to_string(incident.rank));
  const auto index = static_cast<std::uint32_t>(&incident - script_.incidents.data());
  if (incident.kind == Kind::relaunch) {
    Step furthest{script_.first_step};
    for (const Process* process : launches_.back().seats) {
      if (process != nullptr && furthest < process->next) furthest = process->next;
    }
    const std::int64_t world =
        incident.world > 0 ? incident.world : static_cast<std::int64_t>(launches_.back().seats.size());
    open_launch(Step{std::max<std::int64_t>(0, furthest.value - incident.behind)}, world);
  } else if (incident.kind == Kind::storm) {
    lose_ = twice_ = delay_ = 0;
  } else if (incident.kind == Kind::crash) {
    const auto seat = static_cast<std::size_t>(incident.rank);
    Launch& launch = launches_.back();
    const bool empty = seat < launch.seats.size() && seat > 0 && launch.seats[seat] != nullptr &&
                       !launch.seats[seat]->alive && !launch.seats[seat]->left;
    if (empty) spawn(launches_.size() - 1, Rank{static_cast<int>(seat)});
  } else if (incident.rank == -1) {
    trouble_every_register(incident.kind, -1);
  } else {
    for (Process& process : processes_) {
      const auto held = std::find(process.held_by.begin(), process.held_by.end(), index);
      if (held == process.held_by.end()) continue;
      process.held_by.erase(held);
      if (incident.kind == Kind::costs) {
        process.cost -= incident.cost;
      } else {
        hold(process, incident.kind, -1);
      }
    }
  }
}

void Simulation::hold(Process& process, Kind kind, int by) {
  const bool ran = process.agent_runs() && process.trainer_runs();
  if (!ran) process.stopped_while_waiting += now_ - std::max(process.stopped_at, process.waiting_since);
  process.stopped_at = now_;
  if (kind == Kind::stop_trainer) process.trainer_stopped += by;
  if (kind == Kind::stop_agent) process.agent_stopped += by;
  if (kind == Kind::stop_process) process.process_stopped += by;
  if (kind == Kind::cut_up) process.cut_up += by;
  if (kind == Kind::cut_down) process.cut_down += by;
  trouble_register(process, kind, by);
  if (by > 0 || !process.alive) return;
  if (!ran) process.register_well_since = now_;
  resume(process);
}

void Simulation::resume(Process& process) {
  if (process.cut_up == 0 && process.cut_down == 0) {
    for (const auto& [to, mail] : std::exchange(process.kept, {}))
      timeline_.add(now_ + Instant{dice_.between(100, 5000)}, Due::Kind::mail, to, mail);
  }
  const bool trainer_first = dice_.chance(500);
  if (trainer_first && process.trainer_runs() && std::exchange(process.boundary_due, false))
    try_step(process);
  if (process.agent_runs() && (process.turn_due || !process.inbox.empty())) {
    process.turn_due = false;
    for (const std::uint32_t mail : std::exchange(process.inbox, {})) read(process, mail);
    turn(process);
  }
  if (!process.alive || !process.trainer_runs()) return;
  if (std::exchange(process.boundary_due, false)) {
    try_step(process);
  } else if (process.waiting) {
    try_step(process);
  }
}

void Simulation::trouble_register(Process& process, Kind kind, int by) {
  if (kind == Kind::register_hangs) process.register_hangs += by;
  if (kind == Kind::register_fails) process.register_fails += by;
  if ((kind != Kind::register_hangs && kind != Kind::register_fails) || by > 0) return;
  process.register_well_since = now_;
  start_disk(process);
}

void Simulation::trouble_every_register(Kind kind, int by) {
  if (kind == Kind::register_hangs) hangs_everywhere_ += by;
  if (kind == Kind::register_fails) fails_everywhere_ += by;
  for (Process& process : processes_) trouble_register(process, kind, by);
}

void Simulation::relaunch(const Incident& incident) {
  for (Process* process : launches_.back().seats) {
    if (process != nullptr && process->alive && process->rank.value != incident.left_over)
      end_process(*process);
  }
}

PlanPtr Simulation::plan_of(const Incident& incident) {
  auto plan = std::make_shared<Plan>();
  plan->on = incident.on != 0;
  plan->collect_times = incident.times;
  plan->step_interval = incident.interval;
  plan->fence_timeout = Ticks{incident.timeout};
  plan->wait_on_partition = incident.waits != 0;
  if (incident.lookahead > 0) plan->lookahead = incident.lookahead;
  if (incident.later > 0) {
    Step furthest{script_.first_step};
    for (const Process* process : launches_.back().seats) {
      if (process != nullptr && furthest < process->next) furthest = process->next;
    }
    plan->at = furthest + incident.later;
  }
  if (incident.budget > 0) plan->max_overhead = static_cast<double>(incident.budget) / 1000;
  plan->by = "user";
  plan->request_id = "u" + std::to_string(proposals_.size());
  plan->file = FileIdentity{static_cast<std::int64_t>(proposals_.size()), 1, ""};
  proposals_.push_back(incident);
  return plan;
}

bool Simulation::propose(const Incident& incident) {
  Process* rank0 = seat_of(0);
  if (rank0 == nullptr || rank0->leave_by || !rank0->begun) return false;
  Mail mail;
  mail.kind = Mail::Kind::propose;
  mail.plan = plan_of(incident);
  launches_.back().changes.push_back(mail.plan->request_id);
  deliver(*rank0, store(std::move(mail)));
  return true;
}

tl::expected<std::int64_t, std::string> Simulation::can_carry_out(Rank rank, const Plan& plan) const {
  const Incident& asked = proposals_[static_cast<std::size_t>(plan.file->mtime_ns)];
  const bool named = asked.rank == rank.value;
  if (asked.answer == 1 && named) return tl::unexpected(std::string("it cannot"));
  if (asked.answer == 2 || (asked.answer == 3 && !named)) return 0;
  return 1;
}

}  // namespace gradmon

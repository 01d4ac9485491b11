// SPDX-License-Identifier: Apache-2.0
// Simulation: the training threads.
#include <algorithm>
#include <utility>

#include "tests/control/simulator/simulation.h"

namespace gradmon {
namespace {

using std::chrono::milliseconds;

}  // namespace

void Simulation::reach_boundary(Process& process) {
  if (!process.trainer_runs()) {
    process.boundary_due = true;
    return;
  }
  try_step(process);
}

void Simulation::begin_leaving(Process& process) {
  process.to_leave = false;
  process.waiting = false;
  coupled_ranks_ -= process.twin ? 0 : 1;
  perform(process, process.member->applied());
  perform(process, process.member->leave(Step{process.next.value - 1}));
  process.leave_by = now_ + milliseconds{1000};
  wake(process, now_);
  complete_collective();
}

void Simulation::end_step(Process& process) {
  const auto row = std::exchange(process.collecting, std::nullopt);
  if (row && process.gate->step_still_valid(clock())) check_row(process, *row);
}

void Simulation::swap(Process& process, const Commitment& commitment, Step step) {
  process.revision = commitment.revision.value;
  process.meter.begin_plan(commitment.revision);
  process.epoch.clear();
  if (const auto sent = process.committed_in.find(process.revision); sent != process.committed_in.end())
    process.epoch = sent->second;
  if (process.revision != 0) process.plans_in_force.emplace(process.epoch, process.revision);
  if (trace_)
    trace_line(process.id + " runs revision " + std::to_string(process.revision) + " at step " +
               std::to_string(step.value));
}

void Simulation::try_step(Process& process) {
  end_step(process);
  if (process.to_leave) return begin_leaving(process);
  const Step step = process.next;
  bool collects = false;
  if (process.waiting || !process.gate->try_begin(step)) {
    const Opening opening = process.gate->begin(step, clock());
    if (opening.wait) {
      if (!std::exchange(process.waiting, true)) {
        process.waiting_since = now_;
        process.stopped_while_waiting = {};
        if (trace_) trace_line(process.id + " waits at step " + std::to_string(step.value));
      }
      // StepGate::begin_or_wait waits in such slices, too.
      process.boundary = timeline_.add(now_ + milliseconds{50}, Event::Kind::boundary, process.index);
      return;
    }
    if (opening.swap) {
      swap(process, *opening.swap, step);
      wake(process, now_);
    }
    if (opening.ended) {
      process.rows_at = std::max(process.rows_at, now_ + milliseconds{dice_.between(1, 300)});
      timeline_.add(process.rows_at, Event::Kind::rows, process.index,
                    static_cast<std::uint32_t>(process.revision));
    }
    collects = opening.collect;
  }
  on_step_begun(process, step, collects);
}

void Simulation::on_step_begun(Process& process, Step step, bool collects) {
  if (trace_ && process.waiting)
    trace_line(process.id + " waits no more at step " + std::to_string(step.value));
  if (std::exchange(process.waiting, false)) check_wait(process);
  if (running_agent_ != &process) check_promise(process, step);  // its gate is locked while its agent acts
  check_schedule(process, step, collects);
  if (collects) {
    process.collecting = Process::Collecting{step, process.epoch, process.revision};
    process.meter.begin_collected(step, now_, process.step_time * process.cost / 1000);
  }
  process.next = step + 1;
  outcome_.steps += 1;
  add_to_digest(static_cast<std::uint64_t>(now_.count()) * 64 + process.index);
  add_to_digest(process.revision * 2u + (collects ? 1u : 0u));
  if (!process.started && !process.to_start) {
    process.to_start = true;
    wake(process, now_);
  }
  if (script_.coupled != 0 && !process.twin) {
    join_collective(process);
  } else {
    schedule_boundary(process);
  }
}

void Simulation::schedule_boundary(Process& process) {
  const Instant takes{process.step_time.count() * dice_.between(500, 1500) / 1000};
  process.boundary = timeline_.add(now_ + takes, Event::Kind::boundary, process.index);
}

void Simulation::join_collective(Process& process) {
  ranks_in_step_ += 1;
  process.boundary = 0;
  complete_collective();
}

void Simulation::complete_collective() {
  if (script_.coupled == 0 || ranks_in_step_ == 0 || ranks_in_step_ < coupled_ranks_) return;
  ranks_in_step_ = 0;
  for (Process* process : newest_processes_) {
    if (process != nullptr && process->alive && !process->leave_by) schedule_boundary(*process);
  }
}

// The agent calls this inside StepGate, before it stores the gate. Plays the training
// thread, which may begin steps that the old gate allows.
void Simulation::overtake_agent(Process& process) {
  const bool idle = !process.trainer_runs() || process.waiting || process.to_leave || process.leave_by;
  const bool in_collected = process.collecting.has_value();  // its end would lock the gate's mutex
  if (script_.coupled != 0 || idle || in_collected || process.next == process.start || !dice_.chance(500))
    return;
  for (std::int64_t steps = dice_.between(1, 4); steps > 0; --steps) {
    if (!process.gate->try_begin(process.next)) {
      process.waiting = true;  // at the mutex that the agent holds
      process.waiting_since = now_;
      process.stopped_while_waiting = {};
      process.boundary = timeline_.add(now_, Event::Kind::boundary, process.index);
      return;
    }
    on_step_begun(process, process.next, false);
  }
}

}  // namespace gradmon

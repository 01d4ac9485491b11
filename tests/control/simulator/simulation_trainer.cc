// SPDX-License-Identifier: Apache-2.0
// The trainers of a simulated job, and what is checked each time they step.
#include <algorithm>
#include <utility>

#include "tests/control/simulator/simulation.h"

namespace gradmon {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kStartTimeout{30'000};
constexpr milliseconds kLongestDoubt{2000};
constexpr milliseconds kSlack{2000};
constexpr milliseconds kTurn{20};              // by which an agent may count wrong
constexpr milliseconds kRegisterIsWell{1500};  // so long well, it has been asked and has answered

}  // namespace

void Simulation::reach_boundary(Process& process) {
  if (!process.trainer_runs()) {
    process.boundary_due = true;
    return;
  }
  try_step(process);
}

void Simulation::try_step(Process& process) {
  if (process.to_leave) {
    process.to_leave = false;
    process.waiting = false;
    Launch& launch = launch_of(process);
    launch.in_group -= 1;
    perform(process, process.member->applied());
    if (process.started && process.member->joined())
      perform(process, process.member->leave(Step{process.next.value - 1}));
    process.leave_by = now_ + milliseconds{1000};
    wake(process, now_);
    complete_collective(launch);
    return;
  }
  const Step step = process.next;
  bool collects = false;
  if (!process.gate->try_begin(step)) {
    const Opening opening = process.gate->begin(step);
    if (opening.wait) {
      if (!std::exchange(process.waiting, true)) {
        begin_waiting(process);
        if (tell_) tell_line(process.seen.id + " waits at step " + std::to_string(step.value));
      }
      return;
    }
    if (opening.swap) {
      process.revision = static_cast<std::uint32_t>(opening.swap->revision.value);
      process.meter.begin_plan(opening.swap->revision);
      wake(process, now_);
      if (tell_)
        tell_line(process.seen.id + " runs revision " + std::to_string(process.revision) + " at step " +
                  std::to_string(step.value));
    }
    if (opening.ended) {
      Mail rows;
      rows.kind = Mail::Kind::rows;
      rows.revision = Revision{process.revision};
      process.rows_at = std::max(process.rows_at, now_ + milliseconds{dice_.between(1, 300)});
      timeline_.add(process.rows_at, Due::Kind::mail, process.index, store(std::move(rows)));
    }
    collects = opening.collect;
  }
  begun(process, step, collects);
}

void Simulation::begin_waiting(Process& process) {
  process.waiting_since = now_;
  process.waits_under = process.asked;
  process.stopped_while_waiting = {};
  // A call that hangs since an earlier revision is an attempt as well.
  const bool asks = std::any_of(process.disk.begin(), process.disk.end(), [](const DiskCall& call) {
    return call.answer == Mail::Kind::member_answer;
  });
  if (process.promise && asks && !process.promise->asked) process.promise->asked = now_;
}

void Simulation::begun(Process& process, Step step, bool collects) {
  if (tell_ && process.waiting)
    tell_line(process.seen.id + " waits no more at step " + std::to_string(step.value));
  if (std::exchange(process.waiting, false)) check_wait(process);
  if (acting_ != &process) check_promise(process, step);  // its gate is locked while its agent acts
  process.seen.ran.push_back(process.revision);
  if (collects) {
    process.seen.collected.push_back(step.value);
    process.meter.begin_collected(step, now_, process.step_time * process.cost / 1000);
  }
  process.next = step + 1;
  outcome_.steps += 1;
  mix(static_cast<std::uint64_t>(now_.count()) * 64 + process.index);
  mix(process.revision * 2u + (collects ? 1u : 0u));
  if (!process.started && !process.to_start) {
    process.to_start = true;
    wake(process, now_);
  }
  if (script_.coupled != 0) {
    join_collective(process);
  } else {
    schedule_boundary(process);
  }
}

void Simulation::schedule_boundary(Process& process) {
  const Instant takes{process.step_time.count() * dice_.between(500, 1500) / 1000};
  process.boundary = timeline_.add(now_ + takes, Due::Kind::boundary, process.index);
}

void Simulation::join_collective(Process& process) {
  Launch& launch = launch_of(process);
  launch.begun += 1;
  process.boundary = 0;
  complete_collective(launch);
}

void Simulation::complete_collective(Launch& launch) {
  if (script_.coupled == 0 || launch.begun == 0 || launch.begun < launch.in_group) return;
  launch.begun = 0;
  for (Process* process : launch.seats) {
    if (process != nullptr && process->alive && !process->leave_by) schedule_boundary(*process);
  }
}

// Called from within StepGate::promise, by the agent, before it stores the gate:
// another thread may do here what the old gate lets it.
void Simulation::overtake_agent(Process& process) {
  const bool idle = !process.trainer_runs() || process.waiting || process.to_leave || process.leave_by;
  if (script_.coupled != 0 || idle || process.seen.ran.empty() || !dice_.chance(500)) return;
  for (std::int64_t steps = dice_.between(1, 4); steps > 0; --steps) {
    const Step step = process.next;
    if (!process.gate->try_begin(step)) {
      process.waiting = true;  // at the mutex that the agent holds
      begin_waiting(process);
      process.boundary = 0;
      return;
    }
    begun(process, step, false);
  }
}

void Simulation::check_promise(Process& process, Step step) {
  if (process.usurped) return;
  if (step == process.seen.start + 1) check_start(process, step);
  if (!process.promise || step < process.promise->fence) return;
  const Process::Promise promise = *std::exchange(process.promise, std::nullopt);
  if (process.member->progress().closed < promise.revision) check_breach(process, promise, step);
}

void Simulation::check_breach(Process& process, const Process::Promise& promise, Step step) {
  process.seen.breaches.push_back({promise.revision, step});
  const std::string what = process.seen.id + " broke its promise on revision " +
                           std::to_string(promise.revision.value) + " at step " + std::to_string(step.value);
  if (promise.plan->wait_on_partition) return fail(what + ", and was to wait");
  if (!promise.asked || now_ - *promise.asked + kTurn < promise.plan->fence_timeout)
    return fail(what + ", before its time");
  const bool troubled = process.register_hangs + process.register_fails > 0;
  const Instant answers = kRegisterIsWell + milliseconds{3 * script_.register_ms};
  if (!troubled && now_ - process.register_well_since >= answers)
    fail(what + ", though the register could be reached");
}

// Whoever has not been answered, or has not read what was decided before it
// came, goes on alone at last.
void Simulation::check_start(Process& process, Step step) {
  const Revision closed = process.member->progress().closed;
  if (process.member->joined() && closed >= process.owed) return;
  process.seen.breaches.push_back({Revision{}, step});
  const bool troubled =
      process.register_hangs + process.register_fails > 0 || process.register_well_since > process.born;
  if (now_ - process.born < kStartTimeout && !(process.member->joined() && troubled))
    fail(process.seen.id + " began its second step without having been answered");
}

void Simulation::check_wait(const Process& process) {
  const Instant waited = now_ - process.waiting_since - process.stopped_while_waiting;
  Instant most = kLongestDoubt + kSlack;
  const bool start = process.seen.ran.size() == 1;
  if (start) most += kStartTimeout;
  if (process.waits_under) {
    if (process.waits_under->wait_on_partition) return;
    most += process.waits_under->fence_timeout;
  }
  if (waited > most)
    fail(process.seen.id + " waited " + std::to_string(waited.count() / 1000) + " ms at step " +
         std::to_string(process.next.value));
}

}  // namespace gradmon

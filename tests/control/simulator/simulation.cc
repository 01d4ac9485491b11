// SPDX-License-Identifier: Apache-2.0
#include "tests/control/simulator/simulation.h"

#include <algorithm>
#include <utility>

#include "control/agree/mutant.h"

namespace gradmon {
namespace {

using std::chrono::milliseconds;

// A change may wait a minute for its next try.
constexpr milliseconds kSettlesWithin{150'000};
constexpr milliseconds kOffSettlesWithin{30'000};
constexpr milliseconds kLookEvery{200};
constexpr std::uint64_t kMostEvents = 20'000'000;

}  // namespace

Simulation::Simulation(Script script) : script_(std::move(script)), dice_(script_.seed ^ 0x5eed) {
#ifdef GRADMON_MUTANTS
  other_thread = [this] {
    if (acting_ != nullptr) overtake_agent(*acting_);
  };
#endif
}

Simulation::~Simulation() {
#ifdef GRADMON_MUTANTS
  other_thread = nullptr;
#endif
}

Outcome Simulation::run() {
  seats_.resize(static_cast<std::size_t>(script_.world));
  lives_.resize(seats_.size());
  in_group_ = static_cast<int>(script_.world);
  if (!script_.starts.empty()) file_ = plan_of(script_.starts.front());
  start_hub(false);
  for (std::size_t rank = 0; rank < seats_.size(); ++rank) {
    timeline_.add(milliseconds{script_.joins[rank]}, Due::Kind::spawn, static_cast<std::uint32_t>(rank),
                  static_cast<std::uint32_t>(script_.first_step));
  }
  for (std::uint32_t i = 0; i < script_.incidents.size(); ++i) {
    timeline_.add(milliseconds{script_.incidents[i].at}, Due::Kind::incident, 0, i);
  }
  const Instant calm = milliseconds{script_.calm_from};
  std::uint64_t events = 0;
  while (wrong_.empty() && !timeline_.empty() && timeline_.next_at() <= calm) {
    handle(timeline_.take());
    if (++events > kMostEvents) fail("the history does not come to its end");
  }
  if (wrong_.empty()) settle_down();
  if (std::string conflict = rows_.conflict(); wrong_.empty() && !conflict.empty())
    wrong_ = std::move(conflict);
  std::set<std::pair<std::string, std::uint64_t>> in_force;
  for (const Process& process : processes_) in_force.insert(process.ran.begin(), process.ran.end());
  outcome_.switches = in_force.size();
  for (const auto& [epoch, record] : epochs_) {
    outcome_.commits += record.commits.size();
    for (const auto& [revision, verdict] : record.commits) {
      if (verdict.plan->cause == Cause::budget) outcome_.budgets += 1;
    }
  }
  outcome_.wrong = wrong_;
  outcome_.digest = digest_;
  return outcome_;
}

// Nothing goes wrong any more: a last change must reach everybody. Where training
// has waited too long lately, it is an off, for which nobody is too busy.
void Simulation::settle_down() {
  Incident last;
  last.on = 1;
  last.times = 2;
  if (!hub_.alive) start_hub(true);
  propose(last);
  Instant bound = now_ + kSettlesWithin;
  Instant look = now_ + kLookEvery;
  std::string trouble;
  while (wrong_.empty() && !timeline_.empty()) {
    if (timeline_.next_at() < look) {
      handle(timeline_.take());
      continue;
    }
    now_ = look;
    look += kLookEvery;
    trouble = why_not_settled();
    if (trouble.empty()) return;
    if (on_the_way()) bound = std::max(bound, now_ + kOffSettlesWithin);
    if (now_ < bound) continue;
    if (last.on == 0 || !settled_but_for_busy()) return fail("not settled in time: " + trouble);
    last.on = 0;
    propose(last);
    bound = now_ + kOffSettlesWithin;
  }
}

void Simulation::handle(const Due& due) {
  now_ = due.at;
  if (due.kind == Due::Kind::incident) return begin_incident(script_.incidents[due.what], due.what);
  if (due.kind == Due::Kind::incident_ends) return end_incident(script_.incidents[due.what], due.what);
  if (due.kind == Due::Kind::spawn) {
    spawn(Rank{static_cast<int>(due.who)}, Step{static_cast<std::int64_t>(due.what)});
    return;
  }
  if (due.kind == Due::Kind::hub_mail) return hub_reads(due.what);
  if (due.kind == Due::Kind::hub_returns) {
    if (!hub_.alive) start_hub(due.what != 0);
    return;
  }
  if (due.kind == Due::Kind::hub_turn) {
    if (due.at == hub_turn_at_) hub_turn();
    return;
  }
  Process& process = processes_[due.who];
  if (due.kind == Due::Kind::mail) return deliver(process, due.what);
  if (!process.alive) return;
  if (due.kind == Due::Kind::rows) {
    process.finished = Revision{due.what};
    acting_ = &process;
    perform(process, process.member->finished(Revision{due.what}));
    acting_ = nullptr;
  } else if (due.kind == Due::Kind::boundary) {
    if (due.order == process.boundary) reach_boundary(process);
  } else if (due.at < process.turn_at) {
    if (process.turn_entered == due.at) {
      process.turn_entered = {};
      wake(process, process.turn_at);
    }
  } else {
    process.turn_entered = {};
    turn(process);
  }
}

Process& Simulation::spawn(Rank rank, Step start) {
  const auto seat = static_cast<std::size_t>(rank.value);
  Process& process = processes_.emplace_back();
  process.index = static_cast<std::uint32_t>(processes_.size() - 1);
  process.rank = rank;
  process.id = "rank " + std::to_string(rank.value) + "." + std::to_string(++lives_[seat]);
  process.start = process.next = start;
  process.twin = seats_[seat] != nullptr && seats_[seat]->alive;
  if (!process.twin) seats_[seat] = &process;
  process.step_time = milliseconds{script_.step_ms[seat]};
  process.gate = std::make_unique<StepGate>(start);
  Member::Identity identity;
  identity.rank = rank;
  identity.hello.launch_id = "launch";
  identity.hello.world_size = static_cast<int>(script_.world);
  identity.hello.process_id = process.id;
  identity.hello.start_iteration = start;
  process.gate->hold(start + 1, Ticks{2'000});
  process.member = std::make_unique<Member>(
      identity, *process.gate, [this, rank](const Plan& plan) { return can_carry_out(rank, plan); });
  if (tell_) tell_line(process.id + " begins at step " + std::to_string(start.value));
  wake(process, now_);
  schedule_boundary(process);
  return process;
}

void Simulation::end_process(Process& process) {
  process.alive = false;
  for (const std::uint32_t message : process.inbox) free_messages_.push_back(message);
  process.inbox.clear();
  process.member.reset();
  process.gate.reset();
}

Process* Simulation::seat_of(std::int64_t rank) {
  if (rank < 0 || rank >= script_.world) return nullptr;
  Process* process = seats_[static_cast<std::size_t>(rank)];
  return process != nullptr && process->alive ? process : nullptr;
}

Step Simulation::furthest() const {
  Step furthest{script_.first_step};
  for (const Process* process : seats_) {
    if (process != nullptr && furthest < process->next) furthest = process->next;
  }
  return furthest;
}

void Simulation::fail(const std::string& what) {
  if (wrong_.empty()) wrong_ = std::to_string(now_.count() / 1000) + " ms: " + what;
}

Outcome simulate(const Script& script) { return Simulation(script).run(); }

}  // namespace gradmon

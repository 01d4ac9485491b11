// SPDX-License-Identifier: Apache-2.0
#include "tests/control/simulator/simulation.h"

#include <algorithm>
#include <utility>

#include "control/agree/mutant.h"

namespace gradmon {
namespace {

using std::chrono::milliseconds;

// Longer than the longest pause between two attempts at a change, one minute.
constexpr milliseconds kSettlesWithin{150'000};
constexpr milliseconds kOffSettlesWithin{30'000};
constexpr milliseconds kLookEvery{200};
constexpr std::uint64_t kMostEvents = 20'000'000;

}  // namespace

Simulation::Simulation(Script script) : script_(std::move(script)), dice_(script_.seed ^ 0x5eed) {
#ifdef GRADMON_MUTANTS
  other_thread = [this] {
    if (running_agent_ != nullptr) overtake_agent(*running_agent_);
  };
#endif
}

Simulation::~Simulation() {
#ifdef GRADMON_MUTANTS
  other_thread = nullptr;
#endif
}

Outcome Simulation::run() {
  newest_processes_.resize(static_cast<std::size_t>(script_.world));
  process_counts_.resize(newest_processes_.size());
  coupled_ranks_ = static_cast<int>(script_.world);
  if (!script_.starts.empty()) file_ = plan_of(script_.starts.front());
  start_hub(false);
  for (std::size_t rank = 0; rank < newest_processes_.size(); ++rank) {
    timeline_.add(milliseconds{script_.joins[rank]}, Event::Kind::spawn, static_cast<std::uint32_t>(rank),
                  static_cast<std::uint32_t>(script_.first_step));
  }
  for (std::uint32_t i = 0; i < script_.incidents.size(); ++i) {
    timeline_.add(milliseconds{script_.incidents[i].at}, Event::Kind::incident, 0, i);
  }
  const Instant calm = milliseconds{script_.calm_from};
  while (failure_.empty() && !timeline_.empty() && timeline_.next_at() <= calm) handle(timeline_.take());
  if (failure_.empty()) run_until_settled();
  if (std::string conflict = rows_.conflict(); failure_.empty() && !conflict.empty())
    failure_ = std::move(conflict);
  std::set<std::pair<std::string, std::uint64_t>> in_force;
  for (const Process& process : processes_)
    in_force.insert(process.plans_in_force.begin(), process.plans_in_force.end());
  outcome_.switches = in_force.size();
  for (const auto& [epoch, record] : epochs_) {
    outcome_.commits += record.commits.size();
    for (const auto& [revision, verdict] : record.commits) {
      if (verdict.plan->cause == Cause::budget) outcome_.budgets += 1;
      if (verdict.plan->cause != Cause::alert) continue;
      (verdict.plan->returns_to ? outcome_.captures : outcome_.returns) += 1;
    }
  }
  outcome_.failure = failure_;
  outcome_.digest = digest_;
  return outcome_;
}

// No incident goes on any more: a last change must reach every rank. If ranks are
// too busy for a plan that is on, the last change is an off, for which none is.
// A job with alerts captures once more: the last change must then be in force again on every rank.
void Simulation::run_until_settled() {
  Incident last;
  last.on = 1;
  last.times = 2;
  Incident alert;
  alert.times = 3;
  const auto& incidents = script_.incidents;
  bool captures = std::any_of(incidents.begin(), incidents.end(),
                              [](const Incident& one) { return one.kind == Incident::Kind::alert; });
  if (captures) last.times = 50;
  if (!hub_.alive) start_hub(true);
  propose(last);
  Instant bound = now_ + kSettlesWithin;
  Instant look = now_ + kLookEvery;
  std::string trouble;
  while (failure_.empty() && !timeline_.empty()) {
    if (timeline_.next_at() < look) {
      handle(timeline_.take());
      continue;
    }
    now_ = look;
    look += kLookEvery;
    if (captures && last.on != 0 && on_everywhere(changes_.back())) {
      captures = false;
      capture(alert);
    }
    trouble = why_not_settled();
    if (trouble.empty()) return;
    if (progressing_to_end()) bound = std::max(bound, now_ + kOffSettlesWithin);
    if (now_ < bound) continue;
    if (last.on == 0 || !settled_but_for_busy()) return fail("not settled in time: " + trouble);
    last.on = 0;
    propose(last);
    bound = now_ + kOffSettlesWithin;
  }
}

void Simulation::handle(const Event& event) {
  now_ = event.at;
  if (++events_ > kMostEvents) return fail("the history does not come to its end");
  if (event.kind == Event::Kind::incident)
    return begin_incident(script_.incidents[event.payload], event.payload);
  if (event.kind == Event::Kind::incident_ends)
    return end_incident(script_.incidents[event.payload], event.payload);
  if (event.kind == Event::Kind::spawn) {
    spawn(Rank{static_cast<int>(event.target)}, Step{static_cast<std::int64_t>(event.payload)});
    return;
  }
  if (event.kind == Event::Kind::hub_message) return hub_reads(event.payload);
  if (event.kind == Event::Kind::hub_returns) {
    if (!hub_.alive) start_hub(event.payload != 0);
    return;
  }
  if (event.kind == Event::Kind::hub_turn) {
    if (event.at == hub_turn_at_) hub_turn();
    return;
  }
  Process& process = processes_[event.target];
  if (event.kind == Event::Kind::rank_message) return deliver(process, event.payload);
  if (!process.alive) return;
  if (event.kind == Event::Kind::rows) {
    process.finished = Revision{event.payload};
    running_agent_ = &process;
    perform(process, process.member->finished(Revision{event.payload}));
    running_agent_ = nullptr;
  } else if (event.kind == Event::Kind::boundary) {
    if (event.order == process.boundary) reach_boundary(process);
  } else if (event.at < process.turn_at) {
    if (process.turn_entered == event.at) {
      process.turn_entered = {};
      wake(process, process.turn_at);
    }
  } else {
    process.turn_entered = {};
    turn(process);
  }
}

Process& Simulation::spawn(Rank rank, Step start) {
  const auto slot = static_cast<std::size_t>(rank.value);
  Process& process = processes_.emplace_back();
  process.index = static_cast<std::uint32_t>(processes_.size() - 1);
  process.rank = rank;
  process.id = "rank " + std::to_string(rank.value) + "." + std::to_string(++process_counts_[slot]);
  process.start = process.next = start;
  process.twin = newest_processes_[slot] != nullptr && newest_processes_[slot]->alive;
  if (!process.twin) newest_processes_[slot] = &process;
  process.step_time = milliseconds{script_.step_ms[slot]};
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
  if (trace_) trace_line(process.id + " begins at step " + std::to_string(start.value));
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

Process* Simulation::living_process(std::int64_t rank) {
  if (rank < 0 || rank >= script_.world) return nullptr;
  Process* process = newest_processes_[static_cast<std::size_t>(rank)];
  return process != nullptr && process->alive ? process : nullptr;
}

Step Simulation::furthest() const {
  Step furthest{script_.first_step};
  for (const Process* process : newest_processes_) {
    if (process != nullptr && furthest < process->next) furthest = process->next;
  }
  return furthest;
}

void Simulation::fail(const std::string& what) {
  if (failure_.empty()) failure_ = std::to_string(now_.count() / 1000) + " ms: " + what;
}

Outcome simulate(const Script& script) { return Simulation(script).run(); }

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "tests/control/simulator/simulation.h"

#include <algorithm>
#include <utility>

#include "control/agree/mutant.h"

namespace gradmon {
namespace {

using std::chrono::milliseconds;

// A change may wait a minute for its next try, and ten seconds for an answer.
constexpr milliseconds kSettlesWithin{150'000};
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
  open_launch(Step{script_.first_step}, script_.world);
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
  for (Process& process : processes_) {
    if (process.alive) process.seen.closed = process.member->progress().closed;
  }
  for (const Launch& launch : launches_) {
    if (std::string wrong = judge(launch.record); wrong_.empty()) wrong_ = std::move(wrong);
    std::set<std::uint64_t> in_force;
    for (const Conduct* process : launch.record.processes) {
      for (const auto& applied : process->applied) in_force.insert(applied.first.value);
    }
    outcome_.switches += in_force.size();
    for (const auto& [revision, verdict] : launch.record.verdicts) {
      (verdict.commit() ? outcome_.commits : outcome_.aborts) += 1;
      if (verdict.commit() && verdict.plan->cause == Cause::budget) outcome_.budgets += 1;
    }
  }
  outcome_.wrong = wrong_;
  outcome_.digest = digest_;
  return outcome_;
}

// Nothing goes wrong any more: a last change must reach everybody.
void Simulation::settle_down() {
  Incident last;
  last.on = 1;
  last.times = 2;
  bool asked = propose(last);
  std::size_t launches = launches_.size();
  const Instant bound = now_ + kSettlesWithin;
  Instant look = now_ + kLookEvery;
  std::string trouble;
  while (wrong_.empty() && !timeline_.empty()) {
    if (timeline_.next_at() >= look) {
      now_ = look;
      if (!asked || std::exchange(launches, launches_.size()) != launches_.size()) asked = propose(last);
      trouble = why_not_settled();
      if (trouble.empty()) return;
      if (now_ >= bound) return fail("not settled in time: " + trouble);
      look += kLookEvery;
      continue;
    }
    handle(timeline_.take());
  }
}

void Simulation::handle(const Due& due) {
  now_ = due.at;
  if (due.kind == Due::Kind::incident) return begin_incident(script_.incidents[due.what], due.what);
  if (due.kind == Due::Kind::incident_ends) return end_incident(script_.incidents[due.what]);
  if (due.kind == Due::Kind::spawn) return spawn(due.who, Rank{static_cast<int>(due.what)});
  Process& process = processes_[due.who];
  if (due.kind == Due::Kind::mail) return deliver(process, due.what);
  if (due.kind == Due::Kind::disk) return end_disk(process);
  if (!process.alive) return;
  if (due.kind == Due::Kind::boundary) {
    if (due.order == process.boundary) reach_boundary(process);
    return;
  }
  if (due.at < process.turn_at) {
    if (process.turn_entered == due.at) {
      process.turn_entered = {};
      wake(process, process.turn_at);
    }
    return;
  }
  process.turn_entered = {};
  turn(process);
}

void Simulation::open_launch(Step start, std::int64_t world) {
  Launch launch;
  const std::string number = std::to_string(launches_.size());
  launch.epoch = "epoch" + number;
  launch.launcher_id = "launch" + number;
  launch.start = start;
  launch.seats.resize(static_cast<std::size_t>(world));
  launch.lives.resize(static_cast<std::size_t>(world));
  launch.in_group = static_cast<int>(world);
  const bool shares = mutated(Mutant::one_register) && !launches_.empty();
  launch.verdicts = shares ? launches_.back().verdicts : std::make_shared<std::map<Home, MemoryRegister>>();
  launch.record.epoch = launch.epoch;
  launch.record.start = start;
  launches_.push_back(std::move(launch));
  for (std::int64_t rank = 0; rank < world; ++rank) {
    const auto like = static_cast<std::size_t>(rank) % script_.joins.size();
    timeline_.add(now_ + milliseconds{script_.joins[like]}, Due::Kind::spawn,
                  static_cast<std::uint32_t>(launches_.size() - 1), static_cast<std::uint32_t>(rank));
  }
}

void Simulation::spawn(std::size_t number, Rank rank) {
  Launch& launch = launches_[number];
  const auto seat = static_cast<std::size_t>(rank.value);
  Process& process = processes_.emplace_back();
  process.index = static_cast<std::uint32_t>(processes_.size() - 1);
  process.launch = number;
  process.rank = rank;
  process.seen.id = "rank " + std::to_string(rank.value) + "." + std::to_string(++launch.lives[seat]);
  if (number > 0) process.seen.id += " of " + launch.epoch;
  process.seen.start = launch.start;
  process.gate = std::make_unique<StepGate>(launch.start);
  process.gate->hold(launch.start + 1);
  process.next = launch.start;
  process.born = process.last_turn = now_;
  process.step_time = milliseconds{script_.step_ms[seat % script_.step_ms.size()]};
  Member::Identity identity;
  identity.rank = rank;
  identity.process_id = process.seen.id;
  identity.hello.launcher_id = launch.launcher_id;
  identity.hello.world_size = static_cast<int>(launch.seats.size());
  identity.hello.process_id = process.seen.id;
  identity.hello.start_iteration = launch.start;
  process.member = std::make_unique<Member>(
      identity, *process.gate, [this, rank](const Plan& plan) { return can_carry_out(rank, plan); });
  process.register_hangs = hangs_everywhere_;
  process.register_fails = fails_everywhere_;
  launch.seats[seat] = &process;
  launch.record.processes.push_back(&process.seen);
  if (rank.value == 0) {
    Coordinator::Job job;
    job.epoch = launch.epoch;
    job.process_id = process.seen.id;
    job.launcher_id = launch.launcher_id;
    job.world_size = static_cast<int>(launch.seats.size());
    job.start_iteration = launch.start;
    process.coordinator = std::make_unique<Coordinator>(
        job, [this](const Hello& hello) { return liveness_of(hello.process_id); });
    Verdict first;
    if (!script_.starts.empty() && number == 0) first.plan = plan_of(script_.starts.front());
    call_disk(process, Mail::Kind::begin, Home::undecided, std::move(first));
  }
  wake(process, now_);
  schedule_boundary(process);
}

void Simulation::end_process(Process& process) {
  process.seen.closed = process.member->progress().closed;
  process.alive = false;
  if (!process.left) release_from_verdicts(process);
  for (const std::uint32_t mail : process.inbox) free_mails_.push_back(mail);
  process.inbox.clear();
  process.coordinator.reset();
  process.member.reset();
  process.gate.reset();
}

void Simulation::release_from_verdicts(Process& process) {
  const auto& verdicts = launch_of(process).record.verdicts;
  if (!process.seen.bound) process.seen.bound = Revision{verdicts.empty() ? 0 : verdicts.rbegin()->first};
}

Roster::Liveness Simulation::liveness_of(const std::string& id) const {
  if (script_.hosts > 1) return Roster::Liveness::unknown;
  const bool lives = std::any_of(processes_.begin(), processes_.end(),
                                 [&](const Process& one) { return one.alive && one.seen.id == id; });
  return lives ? Roster::Liveness::lives : Roster::Liveness::gone;
}

Process* Simulation::seat_of(std::int64_t rank) {
  Launch& launch = launches_.back();
  if (rank < 0 || rank >= static_cast<std::int64_t>(launch.seats.size())) return nullptr;
  Process* process = launch.seats[static_cast<std::size_t>(rank)];
  return process != nullptr && process->alive ? process : nullptr;
}

void Simulation::fail(const std::string& what) {
  if (wrong_.empty()) wrong_ = std::to_string(now_.count() / 1000) + " ms: " + what;
}

Outcome simulate(const Script& script) { return Simulation(script).run(); }

}  // namespace gradmon

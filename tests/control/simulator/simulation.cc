// SPDX-License-Identifier: Apache-2.0
// Simulation: the course of a history; the agents, the coordinator and the training threads.
#include <algorithm>
#include <utility>

#include "control/agree/mutant.h"
#include "tests/control/simulator/simulation.h"

namespace gradmon {
void Rows::mark_unknown(const std::string& process_id, Step heard) {
  for (auto at = rows_.upper_bound(heard.value); at != rows_.end(); ++at) {
    for (Row& row : at->second) row.unknown = row.unknown || row.process_id == process_id;
  }
}

std::string Rows::conflict() const {
  for (const auto& [step, rows] : rows_) {
    const Row* first = nullptr;
    for (const Row& row : rows) {
      if (row.unknown) continue;
      if (first == nullptr) first = &row;
      if (row.epoch == first->epoch && row.revision == first->revision) continue;
      return "step " + std::to_string(step) + " counts under revision " + std::to_string(first->revision) +
             " of " + first->epoch + " (" + first->process_id + ") and under revision " +
             std::to_string(row.revision) + " of " + row.epoch + " (" + row.process_id + ")";
    }
  }
  return "";
}

namespace {

std::int64_t first_of(const Verdict& commit) {
  return std::max(commit.effective.value, commit.plan->at.value);
}

// The number of steps that a plan collects; the plan is on.
std::int64_t times_of(const Verdict& commit) {
  const Plan& plan = *commit.plan;
  if (!plan.continues) return plan.collect_times;
  std::int64_t times = plan.continues->times();
  for (std::int64_t t = plan.continues->first().value; t < first_of(commit) && times > 0;
       t += plan.continues->interval())
    times -= 1;
  return times;
}

}  // namespace

bool is_collected(const Verdict& commit, Step at) {
  const Plan& plan = *commit.plan;
  if (!plan.on) return false;
  const std::int64_t after = at.value - first_of(commit);
  return after >= 0 && after % plan.step_interval == 0 && after / plan.step_interval < times_of(commit);
}

std::int64_t collected_from(const Verdict& commit, Step from) {
  if (!commit.plan->on) return 0;
  const std::int64_t past = std::max<std::int64_t>(0, from.value - first_of(commit));
  const std::int64_t collected = (past + commit.plan->step_interval - 1) / commit.plan->step_interval;
  return std::max<std::int64_t>(0, times_of(commit) - collected);
}

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

namespace {

constexpr milliseconds kProgressEvery{1000};
constexpr milliseconds kBusyProgressEvery{500};

}  // namespace

void Simulation::deliver(Process& process, std::uint32_t message) {
  if (!process.alive) {
    free_messages_.push_back(message);
  } else if (!process.agent_runs()) {
    process.inbox.push_back(message);
  } else {
    read(process, message);
    turn(process);
  }
}

void Simulation::read(Process& process, std::uint32_t index) {
  const Envelope envelope = std::move(messages_[index]);
  free_messages_.push_back(index);
  outcome_.messages += 1;
  add_to_digest(static_cast<std::uint64_t>(now_.count()) * 64 + process.index);
  add_to_digest(envelope.message.index());
  if (!process.started) return;
  if (trace_) trace_message("to " + process.id, envelope);
  note_received(process, envelope);
  running_agent_ = &process;
  perform(process, process.member->on_envelope(envelope, clock()));
  running_agent_ = nullptr;
  if (process.promise && process.member->progress().closed >= process.promise->revision)
    process.promise.reset();
}

void Simulation::update_connection(Process& process) {
  const int generation = hub_.alive ? hub_.generation : 0;
  if (process.hub_generation == generation) return;
  if (process.hub_generation != 0) process.member->disconnected();
  process.hub_generation = generation;
  if (generation != 0) perform(process, process.member->connected(clock()));
}

void Simulation::turn(Process& process) {
  if (!process.agent_runs()) {
    process.turn_due = true;
    return;
  }
  running_agent_ = &process;
  if (std::exchange(process.to_start, false)) {
    process.started = true;
    perform(process, process.member->start(clock()));
  }
  if (process.started) {
    update_connection(process);
    perform(process, process.member->tick(clock()));
    perform(process, process.member->applied());
    report(process);
  }
  running_agent_ = nullptr;
  if (process.waiting && process.trainer_runs()) try_step(process);
  try_to_exit(process);
  if (process.alive)
    wake(process, now_ + (process.member->busy() || process.leave_by ? kBusyTurn : kIdleTurn));
}

void Simulation::report(Process& process) {
  const milliseconds every = process.member->busy() ? kBusyProgressEvery : kProgressEvery;
  if (!process.member->joined() || now_ - process.last_progress < every) return;
  process.last_progress = now_;
  Progress progress = process.member->progress();
  progress.step_ms = static_cast<double>(process.step_time.count()) / 1000;
  progress.overhead = process.meter.measured();
  MemberActions actions;
  actions.send.push_back(process.member->report(std::move(progress), clock()));
  perform(process, std::move(actions));
}

void Simulation::wake(Process& process, Instant at) {
  process.turn_at = at;
  if (process.turn_entered > now_ && process.turn_entered <= at) return;
  process.turn_entered = at;
  timeline_.add(at, Event::Kind::turn, process.index);
}

void Simulation::try_to_exit(Process& process) {
  if (!process.leave_by) return;
  const bool heard = process.member->left_acknowledged();
  if (!heard && now_ < *process.leave_by) return;
  process.left = heard;
  crash(process);
}

void Simulation::perform(Process& process, MemberActions actions) {
  for (std::string& warning : actions.warnings) {
    // A refused Hello does not end a promise.
    if (warning.rfind("off:", 0) == 0 && warning != "off: " + process.member->refused()) {
      outcome_.lapses += 1;
      process.promise.reset();
    }
    if (trace_) trace_line(process.id + " says: " + warning);
  }
  for (Message& message : actions.send) {
    Envelope envelope = process.member->to_coordinator(std::move(message));
    note_sent(process, envelope);
    post_up(process, std::move(envelope));
  }
}

void Simulation::note_sent(Process& process, const Envelope& envelope) {
  const Message& message = envelope.message;
  if (const auto* hello = std::get_if<Hello>(&message)) process.sent[hello->number] = now_;
  if (const auto* progress = std::get_if<Progress>(&message)) process.sent[progress->number] = now_;
  if (const auto* ready = std::get_if<Ready>(&message)) {
    process.promised_in[{envelope.epoch, ready->revision.value}] = envelope.incarnation;
    // The hold at the start keeps its limit when it becomes a promise, and so does a wait that has begun.
    const bool keeps_limit = process.waiting || ready->fence == process.start + 1;
    process.max_wait =
        std::max(process.offered_waits[ready->config_sha256], keeps_limit ? process.max_wait : Ticks{});
    const bool newer = !process.promise || process.promise->revision < ready->revision;
    if (newer) process.promise = Process::Promise{ready->revision, ready->fence};
    if (newer && ready->fence < process.next)
      fail(process.id + " promises step " + std::to_string(ready->fence.value) + ", which it has begun");
  }
}

// Computes the lease and the epoch of each verdict from the messages, without asking the member.
void Simulation::note_received(Process& process, const Envelope& envelope) {
  const auto renew = [&](std::uint64_t number) {
    const auto sent = process.sent.find(number);
    if (sent != process.sent.end())
      process.lease_until = std::max(process.lease_until, sent->second + Instant{kLease});
  };
  if (const auto* heard = std::get_if<ProgressAck>(&envelope.message)) renew(heard->number);
  if (const auto* welcome = std::get_if<Welcome>(&envelope.message); welcome != nullptr) {
    if (welcome->process_id != process.id) return;
    if (welcome->refused.empty()) renew(welcome->number);
    note_verdict(process, welcome->last, envelope.epoch);
  }
  if (const auto* offer = std::get_if<Offer>(&envelope.message))
    process.offered_waits[offer->plan->config_sha256] = offer->plan->max_wait;
  if (const auto* prepare = std::get_if<Prepare>(&envelope.message))
    note_verdict(process, prepare->last, envelope.epoch);
  if (const auto* decided = std::get_if<Decided>(&envelope.message))
    note_verdict(process, decided->last, envelope.epoch);
}

void Simulation::note_verdict(Process& process, const KnownDecisions& last, const std::string& epoch) {
  if (last.commit) process.committed_in[last.commit->revision.value] = epoch;
}

std::uint32_t Simulation::store(Envelope envelope) {
  if (free_messages_.empty()) {
    messages_.push_back(std::move(envelope));
    return static_cast<std::uint32_t>(messages_.size() - 1);
  }
  const std::uint32_t index = free_messages_.back();
  free_messages_.pop_back();
  messages_[index] = std::move(envelope);
  return index;
}

void Simulation::post_up(Process& process, Envelope envelope) { send(process, true, std::move(envelope)); }

void Simulation::send(Process& member, bool up, Envelope envelope) {
  if ((up ? member.cut_up : member.cut_down) > 0) {
    if (member.cut_keeps) member.kept.emplace_back(up, store(std::move(envelope)));
    return;
  }
  if (dice_.chance(lose_)) return;
  const auto kind = up ? Event::Kind::hub_message : Event::Kind::rank_message;
  for (int copies = dice_.chance(twice_) ? 2 : 1; copies > 0; --copies) {
    const Instant takes{dice_.between(50, 400) + 1000 * dice_.between(0, delay_)};
    timeline_.add(now_ + takes, kind, member.index, store(envelope));
  }
}

void Simulation::start_hub(bool with_log) {
  std::vector<LogEntry> entries;
  if (with_log) {
    entries = hub_.log.entries;
    if (hub_.generation % 2 == 1) entries = compacted(entries, 0);
  } else {
    hub_.log.entries.clear();
    hub_.checked = 0;
    evicted_.clear();
    hub_.epoch = "epoch " + std::to_string(hub_.epochs++);
    // The new coordinator cannot know the last steps of dead processes.
    for (const Process& process : processes_) {
      if (!process.alive) rows_.mark_unknown(process.id, Step{-1});
    }
  }
  hub_.alive = true;
  hub_.file_due = false;
  hub_.generation += 1;
  outcome_.coordinators += 1;
  if (trace_) trace_line("the coordinator begins in " + hub_.epoch);
  JobIdentity job;
  job.epoch = hub_.epoch;
  job.launch_id = "launch";
  job.world_size = static_cast<int>(script_.world);
  hub_.coordinator = std::make_unique<Coordinator>(job, hub_.log);
  hub_.seen.assign(newest_processes_.size(), {});
  hub_.last_turn = now_;
  changes_.clear();
  off_asked_.reset();
  if (with_log) perform(hub_.coordinator->restore(entries, now_.count()));
  perform(hub_.coordinator->begin(file_, now_.count()));
  wake_hub(now_);
}

void Simulation::kill_hub() {
  if (trace_) trace_line("the coordinator dies");
  hub_.alive = false;
  hub_.coordinator.reset();
  for (const std::uint32_t message : std::exchange(hub_.inbox, {})) free_messages_.push_back(message);
}

void Simulation::wake_hub(Instant at) {
  hub_turn_at_ = at;
  timeline_.add(at, Event::Kind::hub_turn, 0);
}

void Simulation::hub_turn() {
  if (!hub_runs()) return;
  const auto elapsed = std::chrono::floor<Ticks>(now_ - hub_.last_turn);
  hub_.last_turn += elapsed;
  hub_.ticked += std::min(elapsed, Ticks{1'000});
  perform(hub_.coordinator->tick(elapsed, now_.count()));
  check_hub();
  wake_hub(now_ + (hub_.coordinator->busy() ? kBusyTurn : kIdleTurn));
}

void Simulation::hub_reads(std::uint32_t index) {
  if (!hub_.alive) {
    free_messages_.push_back(index);
    return;
  }
  if (hub_.stopped > 0) {
    hub_.inbox.push_back(index);
    return;
  }
  const Envelope envelope = std::move(messages_[index]);
  free_messages_.push_back(index);
  outcome_.messages += 1;
  add_to_digest(static_cast<std::uint64_t>(now_.count()) * 64 + 63);
  add_to_digest(envelope.message.index());
  if (trace_) trace_message("from rank " + std::to_string(envelope.rank.value), envelope);
  perform(hub_.coordinator->on_message(envelope, now_.count()));
  if (hub_.coordinator->busy() && hub_turn_at_ > now_ + kBusyTurn) wake_hub(now_ + kBusyTurn);
}

void Simulation::resume_hub() {
  if (!hub_runs()) return;
  for (const std::uint32_t message : std::exchange(hub_.inbox, {})) hub_reads(message);
  if (hub_.file_due) propose_file();
  hub_turn();
}

void Simulation::perform(CoordinatorActions actions) {
  note_dropped();
  check_decided();
  for (const Outgoing& outgoing : actions.send) {
    check_sent(outgoing.message);
    post_down(outgoing);
  }
  if (trace_) {
    for (const std::string& line : actions.warnings) trace_line("the coordinator warns: " + line);
  }
  if (!actions.write_back) return;
  check_write_back(actions);
  if (file_ && file_->file == actions.write_back->file) {
    auto written = std::make_shared<Plan>(*file_);
    written->on = false;
    written->file = FileIdentity{file_->file->mtime_ns, 2, ""};
    file_ = std::move(written);
  }
  hub_.coordinator->write_back_ended(actions.write_back->revision);
}

// Sends to every process of the rank. Each drops messages of another incarnation.
void Simulation::post_down(const Outgoing& outgoing) {
  for (const auto& [rank, incarnation] : outgoing.to) {
    for (Process& process : processes_) {
      if (process.alive && process.rank.value == rank)
        send(process, false, {hub_.epoch, Rank{rank}, incarnation, outgoing.message});
    }
  }
}

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
      // SharedGate::begin_or_wait waits in such slices, too.
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

namespace {

std::string number(Revision revision) { return " " + std::to_string(revision.value); }
std::string number(Step step) { return " " + std::to_string(step.value); }

std::string decisions_text(const KnownDecisions& last) {
  std::string text = "; closed" + number(last.closed);
  if (!last.commit) return text;
  return text + ", newest commit" + number(last.commit->revision) + (last.commit->plan->on ? " on" : " off") +
         " at step" + number(last.commit->effective);
}

struct MessageText {
  std::string operator()(const Hello& m) const {
    return "Hello " + std::to_string(m.number) + " of " + m.process_id + " step" + number(m.step) +
           (m.lapsed ? " lapsed" : "") + (m.held ? ", holds" + number(m.held->revision) : "");
  }
  std::string operator()(const Offered& m) const { return "Offered" + number(m.revision); }
  std::string operator()(const Reject& m) const { return "Reject" + number(m.revision); }
  std::string operator()(const Ready& m) const {
    return "Ready" + number(m.revision) + " fence" + number(m.fence);
  }
  std::string operator()(const Busy& m) const { return "Busy" + number(m.revision); }
  std::string operator()(const Applied& m) const {
    return "Applied" + number(m.revision) + " at" + number(m.step);
  }
  std::string operator()(const Finished& m) const { return "Finished" + number(m.revision); }
  std::string operator()(const Progress& m) const {
    return "Progress " + std::to_string(m.number) + " step" + number(m.step) + " closed" + number(m.closed) +
           " applied" + number(m.applied) + " finished" + number(m.finished);
  }
  std::string operator()(const Left& m) const { return "Left" + number(m.last); }
  std::string operator()(const Disconnected&) const { return "Disconnected"; }
  std::string operator()(const DryRunAnswer&) const { return "DryRunAnswer"; }
  std::string operator()(const Welcome& m) const {
    return "Welcome " + m.process_id + " to Hello " + std::to_string(m.number) + " as " +
           std::to_string(m.incarnation) + (m.epoch_starts_on ? ", starts on" : "") + " " + m.refused +
           decisions_text(m.last);
  }
  std::string operator()(const Offer& m) const { return "Offer" + number(m.revision); }
  std::string operator()(const Prepare& m) const {
    return "Prepare" + number(m.revision) + " lookahead " + std::to_string(m.lookahead) +
           decisions_text(m.last);
  }
  std::string operator()(const Decided& m) const { return "Decided" + decisions_text(m.last); }
  std::string operator()(const ProgressAck& m) const { return "ProgressAck " + std::to_string(m.number); }
  std::string operator()(const LeftAck&) const { return "LeftAck"; }
  std::string operator()(const RejoinRequest&) const { return "RejoinRequest"; }
  std::string operator()(const Replaced&) const { return "Replaced"; }
  std::string operator()(const DryRun&) const { return "DryRun"; }
  std::string operator()(const AlertReport&) const { return "AlertReport"; }
  std::string operator()(const ReplicaDigests&) const { return "ReplicaDigests"; }
  std::string operator()(const ReplicaRequest&) const { return "ReplicaRequest"; }
  std::string operator()(const ReplicaValues&) const { return "ReplicaValues"; }
};

}  // namespace

void Simulation::trace_line(const std::string& line) const {
  trace_(std::to_string(now_.count() / 1000) + " ms: " + line);
}

void Simulation::trace_message(const std::string& to, const Envelope& envelope) const {
  trace_line(to + " (" + std::to_string(envelope.incarnation) +
             "): " + std::visit(MessageText{}, envelope.message));
}

}  // namespace gradmon

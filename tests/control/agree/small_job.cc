// SPDX-License-Identifier: Apache-2.0
#include "tests/control/agree/small_job.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>

namespace gradmon {

SmallJob::SmallJob(int world) : SmallJob(world, Faults{}) {}

SmallJob::SmallJob(int world, Faults faults) : world_(world), faults_(faults), random_(faults.seed) {
  make_coordinator("epoch");
  for (int rank = 0; rank < world; ++rank) start(rank);
}

void SmallJob::make_coordinator(std::string epoch) {
  JobIdentity job;
  job.epoch = epoch_ = std::move(epoch);
  job.launch_id = "launch";
  job.world_size = world_;
  coordinator_ = std::make_unique<Coordinator>(job, decisions);
  generation_ += 1;
  running_ = true;
}

SmallJob::Process& SmallJob::start(int rank, Step start) {
  Process& made = processes_.emplace_back();
  made.id = "p" + std::to_string(processes_.size());
  made.rank = Rank{rank};
  made.start = made.next = start;
  made.gate = std::make_unique<StepGate>(start);
  Member::Identity identity;
  identity.rank = Rank{rank};
  identity.hello.launch_id = "launch";
  identity.hello.world_size = world_;
  identity.hello.host = "host";
  identity.hello.pid = 100 + static_cast<std::int64_t>(processes_.size());
  identity.hello.process_id = made.id;
  identity.hello.start_iteration = start;
  made.gate->hold(start + 1, Ticks{2'000});
  made.member = std::make_unique<Member>(
      identity, *made.gate,
      [this, rank](const Plan& asked) -> tl::expected<std::int64_t, std::string> {
        return can_carry_out ? can_carry_out(rank, asked) : 1;
      },
      [this, rank](const Plan* asked) { return list_targets ? list_targets(rank, asked) : TargetList{}; });
  return made;
}

SmallJob::Process& SmallJob::process(int rank) {
  const auto found = std::find_if(processes_.rbegin(), processes_.rend(),
                                  [&](const Process& one) { return one.rank.value == rank; });
  return *found;
}

PlanPtr SmallJob::plan(bool on, std::int64_t times, std::int64_t interval) const {
  auto made = std::make_shared<Plan>();
  made->on = on;
  made->collect_times = times;
  made->step_interval = interval;
  made->by = "test";
  made->file = FileIdentity{now_, 1, "hash"};
  return made;
}

PlanPtr SmallJob::plan_within(double max_overhead, std::int64_t interval) const {
  auto made = std::make_shared<Plan>(*plan(true, 1'000'000, interval));
  made->max_overhead = max_overhead;
  return made;
}

void SmallJob::begin(PlanPtr first) { perform(coordinator_->begin(std::move(first), 0)); }

void SmallJob::start_collecting(std::int64_t times) {
  begin(plan(true, times));
  const bool done = tick_until([&] { return in_force_on_all(1) && all_past(200); });
  if (!done) throw std::runtime_error("revision 1 has not come into force on all ranks");
}

void SmallJob::train_off(std::int64_t step) {
  begin(nullptr);
  if (!tick_until([&] { return all_past(step); })) throw std::runtime_error("training does not go on");
}

SmallJob::Process& SmallJob::restart(int rank, Step step) {
  kill(rank);
  run_ticks(3);
  return start(rank, step);
}

void SmallJob::reject_on(int rank, const std::string& reason) {
  can_carry_out = [=](int asked, const Plan&) -> tl::expected<std::int64_t, std::string> {
    if (asked == rank) return tl::unexpected(reason);
    return 4;
  };
}

std::size_t SmallJob::counted_in(int ticks, int rank) {
  const std::size_t before = process(rank).collected.size();
  run_ticks(ticks);
  return process(rank).collected.size() - before;
}

void SmallJob::propose(PlanPtr asked) { perform(coordinator_->propose(std::move(asked), 0)); }

void SmallJob::capture(std::shared_ptr<Plan> richer) { perform(coordinator_->capture(std::move(richer), 0)); }

void SmallJob::dry_run(std::string id, PlanPtr asked) {
  perform(coordinator_->dry_run(std::move(id), std::move(asked)));
}

bool SmallJob::evict(int rank) {
  CoordinatorActions actions;
  const bool done = coordinator_->evict(Rank{rank}, "somebody", actions);
  perform(std::move(actions));
  return done;
}

bool SmallJob::cancel() {
  CoordinatorActions actions;
  const bool done = coordinator_->cancel("somebody", actions, 0);
  perform(std::move(actions));
  return done;
}

void SmallJob::post(bool up, Envelope envelope, const Process* from) {
  std::uniform_real_distribution<double> chance(0, 1);
  if (from != nullptr && from->partitioned) return;
  if (should_lose && should_lose(up, envelope)) return;
  if (chance(random_) < faults_.lose) return;
  const int copies = chance(random_) < faults_.duplicate ? 2 : 1;
  for (int copy = 0; copy < copies; ++copy) {
    const int delay = std::uniform_int_distribution<int>(0, faults_.max_delay)(random_);
    network_.push_back({now_ + delay, up, envelope});
  }
}

void SmallJob::perform(CoordinatorActions actions) {
  for (Outgoing& outgoing : actions.send) {
    for (const auto& [rank, incarnation] : outgoing.to) {
      sent.push_back({epoch_, Rank{rank}, incarnation, outgoing.message});
      post(false, sent.back(), nullptr);
    }
  }
  std::move(actions.log.begin(), actions.log.end(), std::back_inserter(log));
  std::move(actions.warnings.begin(), actions.warnings.end(), std::back_inserter(warnings));
  std::move(actions.dry_runs.begin(), actions.dry_runs.end(), std::back_inserter(dry_runs));
  if (actions.write_back) {
    write_backs.push_back(*actions.write_back);
    coordinator_->write_back_ended(actions.write_back->revision);
  }
}

void SmallJob::perform(Process& own, MemberActions actions) {
  for (Message& message : actions.send) post(true, own.member->to_coordinator(std::move(message)), &own);
  std::move(actions.warnings.begin(), actions.warnings.end(), std::back_inserter(own.warnings));
}

void SmallJob::begin_step(Process& own, const Opening& opening) {
  const Step n = own.next;
  if (opening.swap) {
    own.revision = opening.swap->revision.value;
    own.meter.begin_plan(opening.swap->revision);
  }
  if (opening.collect) {
    own.collecting = n;
    own.meter.begin_collected(n, now(), own.cost);
  }
  if (opening.ended) perform(own, own.member->finished(Revision{own.revision}));
}

void SmallJob::train(Process& own, int steps) {
  for (int i = 0; i < steps && !own.trainer_stopped && !own.left; ++i) {
    if (const auto done = std::exchange(own.collecting, {}); done && own.gate->step_still_valid(now())) {
      own.revision_of_counted[done->value] = own.revision;
      own.collected.push_back(done->value);
    }
    const Step n = own.next;
    // A trainer that waits calls begin() again, as SharedGate::begin_or_wait does.
    if (own.waiting_since || !own.gate->try_begin(n)) {
      const Opening opening = own.gate->begin(n, now());
      if (opening.wait) {
        if (!own.waiting_since) own.waiting_since = now();
        own.longest_wait = std::max(own.longest_wait, now() - *own.waiting_since);
        return;
      }
      begin_step(own, opening);
    }
    own.waiting_since.reset();
    own.revision_of_step[n.value] = own.revision;
    own.next = n + 1;
    if (!std::exchange(own.started, true)) perform(own, own.member->start(now()));
  }
}

void SmallJob::update_connection(Process& own) {
  const bool there = running_;
  if (own.connected && (!there || own.coordinator_generation != generation_)) {
    own.connected = false;
    own.member->disconnected();
  }
  if (!own.connected && there) {
    own.connected = true;
    own.coordinator_generation = generation_;
    perform(own, own.member->connected(now()));
  }
}

void SmallJob::tick_agent(Process& own) {
  update_connection(own);
  perform(own, own.member->applied());
  perform(own, own.member->tick(now()));
  const int every = own.member->busy() ? 50 : 100;
  if (now_ % every != 0 || !own.member->joined()) return;
  Progress reported = own.member->progress();
  reported.overhead = own.meter.measured();
  reported.skipped = own.skipped;
  reported.step_ms = own.step_ms;
  own.last_reported = reported.step;
  MemberActions progress;
  progress.send.push_back(own.member->report(std::move(reported), now()));
  perform(own, std::move(progress));
}

void SmallJob::tick(int steps) {
  now_ += 1;
  std::deque<InFlight> arriving;
  std::swap(arriving, network_);
  for (InFlight& one : arriving) {
    if (one.arrives > now_ || (one.up && coordinator_paused)) {
      network_.push_back(std::move(one));
    } else if (one.up) {
      if (running_) perform(coordinator_->on_message(one.envelope, 0));
    } else {
      for (Process& own : processes_) {
        if (own.rank.value != one.envelope.rank.value || !own.alive || !own.started) continue;
        if (!own.agent_stopped && !own.partitioned)
          perform(own, own.member->on_envelope(one.envelope, now()));
      }
    }
  }
  if (running_ && !coordinator_paused) perform(coordinator_->tick(kTick, 0));
  for (Process& own : processes_) {
    if (!own.alive) continue;
    train(own, steps);
    if (own.started && !own.agent_stopped) tick_agent(own);
  }
}

bool SmallJob::tick_until(const std::function<bool()>& condition, int at_most, int steps) {
  for (int i = 0; i < at_most; ++i) {
    if (condition()) return true;
    tick(steps);
  }
  return condition();
}

void SmallJob::run_ticks(int count, int steps) {
  for (int i = 0; i < count; ++i) tick(steps);
}

void SmallJob::leave(int rank) {
  Process& own = process(rank);
  own.left = true;
  perform(own, own.member->leave(Step{own.next.value - 1}));
}

void SmallJob::kill(int rank) {
  Process& own = process(rank);
  own.alive = false;
  post(true, own.member->to_coordinator(Disconnected{}), nullptr);
}

void SmallJob::kill_coordinator() {
  running_ = false;
  network_.clear();
}

void SmallJob::restart_coordinator(bool with_log, PlanPtr from_file) {
  if (running_) kill_coordinator();
  const std::vector<LogEntry> entries = decisions.entries;
  if (!with_log) {
    decisions.entries.clear();
    return make_coordinator("epoch " + std::to_string(++epochs_)), begin(std::move(from_file));
  }
  make_coordinator(epoch_);
  perform(coordinator_->restore(entries, 0));
  begin(std::move(from_file));
}

bool SmallJob::in_force_on_all(std::uint64_t revision) {
  return std::all_of(processes_.begin(), processes_.end(),
                     [&](const Process& own) { return own.left || !own.alive || own.revision == revision; });
}

bool SmallJob::all_past(std::int64_t step) {
  return std::all_of(processes_.begin(), processes_.end(),
                     [&](const Process& own) { return own.left || !own.alive || own.next.value > step; });
}

bool SmallJob::committed(std::uint64_t revision) {
  const HistoryEntry* entry = coordinator_->journal().find(Revision{revision});
  return entry != nullptr && entry->verdict == "commit";
}

std::string SmallJob::pending() {
  const auto pending = coordinator_->status().pending;
  return pending ? pending->reason : "";
}

namespace {

using Runs = std::map<std::int64_t, std::uint64_t>;

std::string first_divergence(const std::deque<SmallJob::Process>& processes, Runs SmallJob::Process::*runs) {
  std::map<std::int64_t, std::pair<std::uint64_t, std::string>> agreed;
  for (const SmallJob::Process& own : processes) {
    for (const auto& [step, revision] : own.*runs) {
      const auto known = agreed.emplace(step, std::pair{revision, own.id}).first;
      if (known->second.first == revision) continue;
      return "step " + std::to_string(step) + ": " + own.id + " of rank " + std::to_string(own.rank.value) +
             " under revision " + std::to_string(revision) + ", " + known->second.second + " under " +
             std::to_string(known->second.first);
    }
  }
  return "";
}

}  // namespace

std::string SmallJob::divergence() const { return first_divergence(processes_, &Process::revision_of_step); }
std::string SmallJob::counted_divergence() const {
  return first_divergence(processes_, &Process::revision_of_counted);
}

}  // namespace gradmon

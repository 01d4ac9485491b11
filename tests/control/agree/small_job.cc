// SPDX-License-Identifier: Apache-2.0
#include "tests/control/agree/small_job.h"

#include <iterator>
#include <utility>

namespace gradmon {
namespace {

constexpr Ticks kTick{10};

}  // namespace

SmallJob::SmallJob(int world) : SmallJob(world, Faults{}) {}

SmallJob::SmallJob(int world, Faults faults) : faults_(faults), random_(faults.seed) {
  Coordinator::Job job;
  job.epoch = "epoch";
  job.process_id = "p0";
  job.launcher_id = "launch";
  job.world_size = world;
  coordinator_ = std::make_unique<Coordinator>(job, [](const Hello&) { return Roster::Liveness::lives; });
  processes_.resize(static_cast<std::size_t>(world));
  for (int rank = 0; rank < world; ++rank) {
    Process& made = process(rank);
    made.gate = std::make_unique<StepGate>(Step{0});
    Member::Identity identity;
    identity.rank = Rank{rank};
    identity.process_id = "p" + std::to_string(rank);
    identity.hello.launcher_id = "launch";
    identity.hello.world_size = world;
    identity.hello.process_id = identity.process_id;
    made.member = std::make_unique<Member>(
        identity, *made.gate,
        [this, rank](const Plan& asked) -> tl::expected<std::int64_t, std::string> {
          return can_carry_out ? can_carry_out(rank, asked) : 1;
        },
        [this, rank](const Plan* asked) { return list_targets ? list_targets(rank, asked) : TargetList{}; });
  }
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
void SmallJob::propose(PlanPtr asked) { perform(coordinator_->propose(std::move(asked), 0)); }

void SmallJob::probe(std::string id, PlanPtr asked) {
  perform(coordinator_->probe(std::move(id), std::move(asked)));
}

void SmallJob::post(bool up, const Letter& letter) {
  std::uniform_real_distribution<double> chance(0, 1);
  if (process(letter.rank.value).cut || process(letter.rank.value).unheard) return;
  if (chance(random_) < faults_.lose) return;
  const int copies = chance(random_) < faults_.twice ? 2 : 1;
  for (int copy = 0; copy < copies; ++copy) {
    const int delay = std::uniform_int_distribution<int>(0, faults_.most_delay)(random_);
    network_.push_back({now_ + delay, up, letter});
  }
}

void SmallJob::perform(CoordinatorActions actions) {
  for (const Letter& letter : actions.send) post(false, letter);
  for (std::string& line : actions.log) log.push_back(std::move(line));
  std::move(actions.probed.begin(), actions.probed.end(), std::back_inserter(probed));
  if (actions.write_back) {
    write_backs.push_back(*actions.write_back);
    coordinator_->write_back_ended(actions.write_back->revision);
  }
  if (actions.write) {
    perform(coordinator_->on_register(verdicts_.decide(*actions.write), 0));
  }
}

void SmallJob::perform(int rank, MemberActions actions) {
  Process& own = process(rank);
  for (Message& message : actions.send) {
    const bool hello = std::holds_alternative<Hello>(message);
    post(true, {hello ? "" : "epoch", Rank{rank}, hello ? 0 : own.incarnation, std::move(message)});
  }
  if (actions.prove) perform(rank, own.member->on_proof({}));
  if (actions.write) {
    perform(rank, own.member->on_register(own.cut ? tl::unexpected(std::string("gone"))
                                                  : verdicts_.decide(*actions.write)));
  }
}

void SmallJob::train(int rank, int steps) {
  Process& own = process(rank);
  for (int i = 0; i < steps && !own.paused && !own.left; ++i) {
    const Step n = own.next;
    if (!own.gate->try_begin(n)) {
      const Opening opening = own.gate->begin(n);
      if (opening.wait) return;
      if (opening.swap) {
        own.revision = opening.swap->revision.value;
        own.meter.begin_plan(opening.swap->revision);
      }
      if (opening.collect) {
        own.collected.push_back(n.value);
        own.meter.begin_collected(n, now_ * kTick, own.cost);
      }
      if (opening.ended) perform(rank, own.member->finished(Revision{own.revision}));
    }
    own.ran[n.value] = own.revision;
    own.next = n + 1;
    if (!std::exchange(own.started, true)) {
      own.gate->hold(Step{1});
      perform(rank, own.member->say_hello());
    }
  }
}

void SmallJob::tick(int steps) {
  now_ += 1;
  for (std::size_t count = network_.size(); count > 0; --count) {
    InFlight arriving = std::move(network_.front());
    network_.pop_front();
    if (arriving.arrives > now_) {
      network_.push_back(std::move(arriving));
    } else if (arriving.up) {
      perform(coordinator_->on_letter(arriving.letter, 0));
    } else if (Process& own = process(arriving.letter.rank.value); !own.deaf && !own.cut && !own.unheard) {
      if (std::holds_alternative<Welcome>(arriving.letter.message))
        own.incarnation = arriving.letter.incarnation;
      perform(arriving.letter.rank.value, own.member->on_message(arriving.letter.message));
    }
  }
  perform(coordinator_->tick(kTick, 0));
  for (int rank = 0; rank < world(); ++rank) {
    Process& own = process(rank);
    train(rank, steps);
    if (!own.started || own.deaf) continue;
    perform(rank, own.member->applied());
    perform(rank, own.member->tick(kTick));
    if (now_ % 100 == 0 && own.member->joined()) {
      MemberActions progress;
      Progress told = own.member->progress();
      told.overhead = own.meter.measured();
      told.skipped = own.skipped;
      progress.send.emplace_back(std::move(told));
      perform(rank, std::move(progress));
    }
  }
}

bool SmallJob::tick_until(const std::function<bool()>& condition, int at_most, int steps) {
  for (int i = 0; i < at_most; ++i) {
    if (condition()) return true;
    tick(steps);
  }
  return condition();
}

void SmallJob::leave(int rank) {
  Process& own = process(rank);
  own.left = true;
  perform(rank, own.member->leave(Step{own.next.value - 1}));
}

bool SmallJob::all_run(std::uint64_t revision) {
  for (const Process& own : processes_) {
    if (!own.left && own.revision != revision) return false;
  }
  return true;
}

std::string SmallJob::divergence() const {
  std::map<std::int64_t, std::uint64_t> agreed;
  for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
    for (const auto& [step, revision] : processes_[rank].ran) {
      const auto known = agreed.emplace(step, revision).first;
      if (known->second != revision) {
        return "step " + std::to_string(step) + ": rank " + std::to_string(rank) + " ran revision " +
               std::to_string(revision) + ", another " + std::to_string(known->second);
      }
    }
  }
  return "";
}

}  // namespace gradmon

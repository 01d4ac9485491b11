// SPDX-License-Identifier: Apache-2.0
// The agents of a simulated job, as control/net/agent_loop.cc has them: letters
// in, a turn, letters and calls of the register out.
#include <utility>

#include "tests/control/simulator/simulation.h"

namespace gradmon {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBusyTurn{10};
constexpr milliseconds kIdleTurn{100};
constexpr milliseconds kProgressEvery{1000};

}  // namespace

void Simulation::deliver(Process& process, std::uint32_t mail) {
  if (!process.alive) {
    free_mails_.push_back(mail);
  } else if (!process.agent_runs()) {
    process.inbox.push_back(mail);
  } else {
    read(process, mail);
    turn(process);
  }
}

void Simulation::read(Process& process, std::uint32_t index) {
  const Mail mail = std::move(mails_[index]);
  free_mails_.push_back(index);
  outcome_.letters += 1;
  mix(static_cast<std::uint64_t>(now_.count()) * 64 + process.index);
  mix(mail.letter.message.index() * 16 + static_cast<std::uint64_t>(mail.kind));
  if (tell_) tell(process, mail);
  acting_ = &process;
  switch (mail.kind) {
    case Mail::Kind::begin:
      process.begun = true;
      perform(process, process.coordinator->begin(mail.plan, now_.count()));
      break;
    case Mail::Kind::propose:
      perform(process, process.coordinator->propose(mail.plan, now_.count()));
      break;
    case Mail::Kind::up:
      perform(process, process.coordinator->on_letter(mail.letter, now_.count()));
      break;
    case Mail::Kind::down:
      to_member(process, mail.letter);
      break;
    case Mail::Kind::member_answer:
      perform(process, process.member->on_register(mail.held));
      break;
    case Mail::Kind::coordinator_answer:
      perform(process, process.coordinator->on_register(mail.held, now_.count()));
      break;
    case Mail::Kind::proof:
      perform(process, process.member->on_proof(
                           mail.held ? tl::expected<void, std::string>{} : tl::unexpected(mail.held.error()),
                           mail.home));
      process.last_progress = {};
      break;
    case Mail::Kind::rows:
      process.finished = mail.revision;
      perform(process, process.member->finished(mail.revision));
      process.last_progress = {};
      break;
  }
  acting_ = nullptr;
}

void Simulation::turn(Process& process) {
  if (!process.agent_runs()) {
    process.turn_due = true;
    return;
  }
  acting_ = &process;
  const auto elapsed = std::chrono::floor<milliseconds>(now_ - process.last_turn);
  process.last_turn += elapsed;
  if (std::exchange(process.to_start, false)) {
    process.started = true;
    perform(process, process.member->say_hello());
  }
  if (process.started) {
    report(process, false);
    perform(process, process.member->tick(elapsed));
  }
  if (process.coordinator) {
    perform(process, process.coordinator->tick(elapsed, now_.count()));
    while (!process.own_letters.empty()) {
      const Letter letter = std::move(process.own_letters.front());
      process.own_letters.pop_front();
      perform(process, process.coordinator->on_letter(letter, now_.count()));
    }
  }
  acting_ = nullptr;
  process.seen.closed = process.member->progress().closed;
  if (process.waiting && process.trainer_runs()) try_step(process);
  try_to_go(process);
  if (process.alive) schedule_turn(process);
}

void Simulation::report(Process& process, bool soon) {
  MemberActions applied = process.member->applied();
  soon = soon || !applied.send.empty();
  perform(process, std::move(applied));
  if (!process.member->joined() || (!soon && now_ - process.last_progress < kProgressEvery)) return;
  process.last_progress = now_;
  Progress progress = process.member->progress();
  progress.step_ms = static_cast<double>(process.step_time.count()) / 1000;
  progress.overhead = process.meter.measured();
  post_up(process, std::move(progress));
}

void Simulation::schedule_turn(Process& process) {
  const bool busy = process.member->busy() || process.leave_by ||
                    (process.coordinator && (process.coordinator->busy() || !process.own_letters.empty()));
  wake(process, now_ + (busy ? kBusyTurn : kIdleTurn));
}

void Simulation::wake(Process& process, Instant at) {
  process.turn_at = at;
  if (process.turn_entered > now_ && process.turn_entered <= at) return;
  process.turn_entered = at;
  timeline_.add(at, Due::Kind::turn, process.index);
}

void Simulation::try_to_go(Process& process) {
  if (!process.leave_by) return;
  const bool heard = process.member->left_heard() && process.own_letters.empty() &&
                     (!process.coordinator || process.coordinator->may_go());
  if (!heard && now_ < *process.leave_by) return;
  if (process.coordinator) perform(process, process.coordinator->close());
  process.left = process.member->left_heard() || process.coordinator;
  end_process(process);
}

void Simulation::to_member(Process& process, const Letter& letter) {
  if (const auto* welcome = std::get_if<Welcome>(&letter.message)) {
    if (welcome->process_id != process.seen.id || process.member->joined()) return;
    if (welcome->refused.empty()) {
      process.incarnation = letter.incarnation;
      process.epoch = letter.epoch;
      process.owed = welcome->rejoined ? welcome->last.closed : Revision{};
    }
  } else if (letter.epoch != process.epoch || letter.incarnation != process.incarnation) {
    return;
  }
  if (const auto* prepare = std::get_if<Prepare>(&letter.message)) process.asked = prepare->plan;
  Process* const before = std::exchange(acting_, &process);
  perform(process, process.member->on_message(letter.message));
  acting_ = before;
}

void Simulation::note(Process& process, const Message& message) {
  if (const auto* ready = std::get_if<Ready>(&message)) {
    if (std::exchange(process.promised,
                      ready->revision < process.promised ? process.promised : ready->revision) <
        ready->revision)
      process.promise = Process::Promise{ready->revision, ready->fence, process.asked, {}};
  } else if (const auto* missed = std::get_if<Missed>(&message)) {
    process.seen.missed.insert(missed->revision.value);
    // It may have given up, and its trainer not have got so far.
    if (process.promise && process.promise->revision == missed->revision)
      check_breach(process, *std::exchange(process.promise, std::nullopt), process.next);
    outcome_.missed += 1;
  } else if (const auto* applied = std::get_if<Applied>(&message)) {
    process.seen.applied.emplace_back(applied->revision, applied->step);
  }
}

void Simulation::perform(Process& process, MemberActions actions) {
  for (Message& message : actions.send) {
    note(process, message);
    post_up(process, std::move(message));
  }
  if (actions.write) {
    auto& promise = process.promise;
    if (promise && promise->revision == actions.write->revision && !promise->asked) promise->asked = now_;
    call_disk(process, Mail::Kind::member_answer, process.member->home(), std::move(*actions.write));
  }
  if (actions.prove) call_disk(process, Mail::Kind::proof, Home::directory, {});
  if (actions.prove_in_store) call_disk(process, Mail::Kind::proof, Home::store, {});
}

void Simulation::perform(Process& process, CoordinatorActions actions) {
  if (actions.write)
    call_disk(process, Mail::Kind::coordinator_answer, process.coordinator->home(),
              std::move(*actions.write));
  if (actions.write_back) check_write_back(process, actions);
  for (Letter& letter : actions.send) post_down(process, std::move(letter));
  if (actions.write_back) process.coordinator->write_back_ended(actions.write_back->revision);
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// Simulation: the agents. They read messages, take turns and send messages.
#include <algorithm>
#include <utility>

#include "tests/control/simulator/simulation.h"

namespace gradmon {
namespace {

using std::chrono::milliseconds;

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
  if (process.promise && process.member->progress(clock()).closed >= process.promise->revision)
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
  Progress progress = process.member->progress(clock());
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

}  // namespace gradmon

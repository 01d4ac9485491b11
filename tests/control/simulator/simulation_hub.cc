// SPDX-License-Identifier: Apache-2.0
// Simulation: the coordinator. It starts and dies, takes turns, reads and sends messages.
#include <algorithm>
#include <utility>

#include "tests/control/simulator/simulation.h"

namespace gradmon {

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
  Coordinator::Job job;
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

}  // namespace gradmon

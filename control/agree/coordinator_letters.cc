// SPDX-License-Identifier: Apache-2.0
// Coordinator: what each letter of a member changes.
#include <string>
#include <utility>

#include "control/agree/coordinator.h"

namespace gradmon {
namespace {

constexpr std::size_t kMostEarly = 100'000;

}  // namespace

void Coordinator::answer_hello(Rank rank, const Hello& hello, CoordinatorActions& actions) {
  const bool within = rank.value >= 0 && rank.value < roster_.size();
  const std::uint64_t before = within ? roster_.seat(rank.value).incarnation : 0;
  Welcome welcome = roster_.on_hello(rank, hello, clock_);
  if (welcome.refused.empty() && before != 0 && before != welcome.incarnation) {
    actions.send.push_back({job_.epoch, rank, before, Replaced{}});
  }
  // Whoever is not yet in when revision 1 has been decided starts with what holds.
  welcome.starts_on = starts_on_ && last_.closed < Revision{1};
  welcome.run_id = job_.run_id;
  welcome.started = job_.started;
  welcome.nonce = job_.nonce;
  welcome.last = last_;
  actions.send.push_back({job_.epoch, rank, welcome.incarnation, std::move(welcome)});
}

CoordinatorActions Coordinator::on_letter(const Letter& letter, WallTime now) {
  CoordinatorActions actions;
  if (const auto* hello = std::get_if<Hello>(&letter.message)) {
    if (!begun_) {
      if (early_.size() < kMostEarly) early_.push_back(letter);
      return actions;
    }
    answer_hello(letter.rank, *hello, actions);
    return actions;
  }
  if (letter.epoch != job_.epoch) return actions;
  Roster::Seat* seat = roster_.find(letter);
  if (seat == nullptr) {
    actions.send.push_back({job_.epoch, letter.rank, letter.incarnation, Replaced{}});
    return actions;
  }
  seat->last_seen = clock_;
  const bool answered_before = seat->answers();
  if (const auto* joined = std::get_if<Joined>(&letter.message)) {
    roster_.on_joined(letter.rank, *seat, *joined);
  } else if (const auto* ready = std::get_if<Ready>(&letter.message)) {
    if (open_ && ready->revision == open_->revision && ready->proposer == job_.process_id && !seat->ready) {
      seat->ready = *ready;
    }
  } else if (const auto* reject = std::get_if<Reject>(&letter.message)) {
    if (open_ && reject->revision == open_->revision) {
      seat->reject = *reject;
      open_->rejected = true;
    }
  } else if (const auto* applied = std::get_if<Applied>(&letter.message)) {
    note_applied(*seat, letter.rank, *applied, actions);
  } else if (const auto* finished = std::get_if<Finished>(&letter.message)) {
    if (seat->progress.finished < finished->revision) seat->progress.finished = finished->revision;
  } else if (const auto* missed = std::get_if<Missed>(&letter.message)) {
    resync(letter.rank, missed->revision, actions, now);
  } else if (const auto* progress = std::get_if<Progress>(&letter.message)) {
    note_progress(*seat, letter.rank, *progress, actions, now);
  } else if (const auto* left = std::get_if<Left>(&letter.message)) {
    seat->state = Roster::State::left;
    seat->last_step = left->last;
    seat->progress.step = left->last;
    actions.send.push_back(letter_to(letter.rank.value, LeftHeard{}));
  } else if (const auto* pong = std::get_if<Pong>(&letter.message)) {
    roster_.on_pong(*seat, *pong);
  } else if (const auto* probed = std::get_if<Probed>(&letter.message)) {
    probe_.on_probed(letter.rank, *probed);
  } else if (const auto* decided = std::get_if<Decided>(&letter.message)) {
    // Somebody has closed it: the register says how. Our Abort can only lose.
    if (open_ && decided->last.closed >= open_->revision && !open_->verdict) {
      open_->verdict = abort(AbortReason::timed_out, "closed by rank " + std::to_string(letter.rank.value));
    }
  }
  // Whoever was waited for may be this one: nothing is gained by more patience.
  if (waiting_ && !answered_before && seat->answers()) waiting_->not_before = clock_;
  actions += advance(now);
  return actions;
}

void Coordinator::note_progress(Roster::Seat& seat, Rank rank, const Progress& progress,
                                CoordinatorActions& actions, WallTime now) {
  note_applied(seat, rank, {progress.applied, progress.applied_step}, actions);
  roster_.on_progress(seat, progress, clock_);
  if (progress.missed > progress.applied) resync(rank, progress.missed, actions, now);
  if ((progress.closed < last_.closed || progress.home != last_.home) && seat.answers()) {
    actions.send.push_back(letter_to(rank.value, Decided{last_}));
  }
}

void Coordinator::note_applied(Roster::Seat& seat, Rank rank, const Applied& applied,
                               CoordinatorActions& actions) {
  if (applied.revision == Revision{}) return;
  if (seat.progress.applied < applied.revision) {
    seat.progress.applied = applied.revision;
    seat.progress.applied_step = applied.step;
    if (seat.progress.step < applied.step) seat.progress.step = applied.step;
  }
  HistoryEntry* entry = journal_.find(applied.revision);
  if (entry == nullptr || !entry->applied.emplace(rank.value, applied.step.value).second) return;
  journal_.touch(applied.revision);
  const CommittedPlans::One* now_in_force = committed_.find(applied.revision);
  if (rank.value != 0 || now_in_force == nullptr) return;
  const Plan& plan = *now_in_force->verdict.plan;
  actions.log.push_back(std::string(plan.on ? "ON" : "OFF") + " at step " +
                        std::to_string(applied.step.value) + " (revision " +
                        std::to_string(applied.revision.value) + ", " + name_of(plan.cause) + ")");
  committed_.forget_before(applied.revision);
}

}  // namespace gradmon

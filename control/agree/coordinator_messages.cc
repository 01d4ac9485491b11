// SPDX-License-Identifier: Apache-2.0
// Coordinator: the handling of each message of a member.
#include <algorithm>
#include <string>
#include <utility>

#include "control/agree/coordinator.h"
#include "control/agree/mutant.h"

namespace gradmon {
namespace {

constexpr std::size_t kMostEarly = 100'000;

}  // namespace

void Coordinator::answer_hello(Rank rank, const Hello& hello, CoordinatorActions& actions, WallTime now) {
  Membership::Answer answer = members_.on_hello(rank, hello, clock_);
  if (answer.late) return;
  Welcome welcome = std::move(answer.welcome);
  // If the rank's epoch began later than this hub's clock, the clock was set back, and this epoch is the
  // newer one. Otherwise the epoch of the higher order is newer, and the rank does not join.
  if (hello.held_epoch != job_.epoch && hello.epoch_order > now)
    order_ = std::max(order_, hello.epoch_order + 1);
  const bool admitted = welcome.refused.empty() && !members_.of(rank.value).logged;
  if (admitted) {
    note_earlier_epoch(hello);
    if (hello.held) inherit(hello, actions, now);
    RankMember& member = members_.of(rank.value);
    member.logged = true;
    note(JoinedEntry{rank, member.incarnation, member.hello}, actions);
    const bool on = last_.commit && last_.commit->plan->on && !committed_.ended();
    if (answer.joined && on) ranks_to_start_.insert(rank.value);
    if (answer.joined && !on && last_.commit) {
      // It collects nothing, like all other ranks.
      in_force_ = last_.commit->revision;
      member.progress.applied = member.progress.finished = last_.commit->revision;
      member.progress.applied_step = hello.step;
    }
    // The rank must answer, too. Another incarnation sent its earlier answers.
    if (open_ && open_->proposal.plan->on) member.asked = true;
    if (open_) open_->first_missing = 0;
  }
  // After the first commit a rank that joins starts with the decisions in `last`.
  welcome.epoch_starts_on = starts_on_ && !last_.commit && (open_ || waiting_);
  welcome.run_id = job_.run_id;
  welcome.started = job_.started;
  welcome.epoch_order = order_;
  welcome.last = last_;
  welcome.takes_alerts = true;
  welcome.takes_replicas = true;
  actions.send.push_back({{{rank.value, welcome.incarnation}}, std::move(welcome)});
}

CoordinatorActions Coordinator::on_message(const Envelope& envelope, WallTime now) {
  CoordinatorActions actions = receive(envelope, now);
  actions += advance(now);
  return actions;
}

// Answers a process that is not, or no longer, a member.
void Coordinator::answer_non_member(const Envelope& envelope, CoordinatorActions& actions) const {
  const bool within = envelope.rank.value >= 0 && envelope.rank.value < members_.size();
  if (!within || std::holds_alternative<Disconnected>(envelope.message)) return;
  const RankMember& holder = members_.of(envelope.rank.value);
  const Outgoing::To to{{envelope.rank.value, envelope.incarnation}};
  if (std::holds_alternative<Left>(envelope.message)) {
    actions.send.push_back({to, LeftAck{}});
  } else if (holder.takes_part() && !members_.is_from_present_process(envelope)) {
    actions.send.push_back({to, Replaced{}});
  } else {
    actions.send.push_back({to, RejoinRequest{}});
  }
}

CoordinatorActions Coordinator::receive(const Envelope& envelope, WallTime now) {
  CoordinatorActions actions;
  if (const auto* hello = std::get_if<Hello>(&envelope.message)) {
    if (!begun_) {
      if (early_.size() < kMostEarly) early_.push_back(envelope);
    } else {
      answer_hello(envelope.rank, *hello, actions, now);
    }
    return actions;
  }
  if (envelope.epoch != job_.epoch) return actions;
  RankMember* member = members_.find(envelope);
  if (member == nullptr) {
    answer_non_member(envelope, actions);
    return actions;
  }
  member->last_heard = clock_;
  member->heard_since_hello = true;
  if (const auto* offered = std::get_if<Offered>(&envelope.message)) {
    if (open_ && offered->revision == open_->revision) member->offered = *offered;
  } else if (const auto* reject = std::get_if<Reject>(&envelope.message)) {
    if (open_ && reject->revision == open_->revision && open_->proposal.plan->on) {
      member->reject = *reject;
      open_->objected = true;
    }
  } else if (const auto* ready = std::get_if<Ready>(&envelope.message)) {
    const bool ours = open_ && ready->revision == open_->revision &&
                      ready->config_sha256 == open_->proposal.plan->config_sha256;
    if (ours && !member->ready) member->ready = *ready;
  } else if (const auto* busy = std::get_if<Busy>(&envelope.message)) {
    if (open_ && busy->revision == open_->revision && open_->proposal.plan->on) {
      member->busy = *busy;
      open_->objected = true;
    }
  } else if (const auto* applied = std::get_if<Applied>(&envelope.message)) {
    note_applied(*member, envelope.rank, *applied, actions);
  } else if (const auto* finished = std::get_if<Finished>(&envelope.message)) {
    member->progress.finished = std::max(member->progress.finished, finished->revision);
  } else if (const auto* progress = std::get_if<Progress>(&envelope.message)) {
    note_progress(*member, envelope.rank, *progress, actions, now);
  } else if (const auto* left = std::get_if<Left>(&envelope.message)) {
    members_.on_left(envelope.rank, left->last);
    note(DepartureEntry{envelope.rank, DepartureEntry::How::left, left->last, ""}, actions);
    send(envelope.rank.value, LeftAck{}, actions);
  } else if (std::holds_alternative<Disconnected>(envelope.message)) {
    members_.on_disconnected(envelope.rank, clock_, "its process ended");
    note_departure(envelope.rank.value, actions);
  } else if (const auto* answer = std::get_if<DryRunAnswer>(&envelope.message)) {
    dry_runs_.on_dry_run_answer(envelope.rank, *answer);
  }
  // If the last attempt missed this rank's answer, the retry need not wait any longer.
  if (waiting_ && waiting_->not_before > clock_) {
    const auto& missed = waiting_->missed;
    if (std::find(missed.begin(), missed.end(), envelope.rank.value) != missed.end()) {
      waiting_->not_before = clock_;
      waiting_->missed.clear();
    }
  }
  return actions;
}

void Coordinator::note_departure(int rank, CoordinatorActions& actions) {
  const RankMember& member = members_.of(rank);
  note(DepartureEntry{Rank{rank}, DepartureEntry::How::dropped, member.last_step, ""}, actions);
  ranks_to_start_.erase(rank);
  actions.warnings.push_back("rank " + std::to_string(rank) + " is dropped at step " +
                             std::to_string(member.last_step.value) + ": " + member.departure_reason);
  if (waiting_) waiting_->not_before = std::min(waiting_->not_before, clock_);
}

void Coordinator::note_progress(RankMember& member, Rank rank, const Progress& progress,
                                CoordinatorActions& actions, WallTime now) {
  note_applied(member, rank, {progress.applied, progress.applied_step}, actions);
  members_.on_progress(member, progress, clock_);
  catch_up(progress.closed, actions, now);
  if (progress.closed < last_.closed) send(rank.value, Decided{last_}, actions);
  if (!member.evicted_by.empty() && !mutant_active(Mutant::evicted_counts_in)) return;
  member.last_acknowledged = clock_;
  send(rank.value, ProgressAck{progress.number}, actions);
}

void Coordinator::note_applied(RankMember& member, Rank rank, const Applied& applied,
                               CoordinatorActions& actions) {
  if (applied.revision == Revision{}) return;
  if (committed_.find(applied.revision) != nullptr) in_force_ = std::max(in_force_, applied.revision);
  if (member.progress.applied < applied.revision) {
    member.progress.applied = applied.revision;
    member.progress.applied_step = applied.step;
    if (member.progress.step < applied.step) member.progress.step = applied.step;
  }
  HistoryEntry* entry = journal_.find(applied.revision);
  if (entry == nullptr) return;
  if (!entry->applied.emplace(rank.value, applied.step.value).second) return;
  journal_.touch(applied.revision);
  const CommittedPlan* now_in_force = committed_.find(applied.revision);
  if (now_in_force == nullptr) return;
  // Logged, so that a restarted coordinator does not repeat the line.
  if (committed_.announce(applied.revision)) {
    note(AppliedEntry{applied.revision}, actions);
    const Plan& plan = *now_in_force->verdict.plan;
    actions.log.push_back(std::string(plan.on ? "ON" : "OFF") + " at step " +
                          std::to_string(applied.step.value) + " (revision " +
                          std::to_string(applied.revision.value) + ", " + name_of(plan.cause) + ")");
  }
  if (&member == &members_.status_member()) committed_.forget_before(applied.revision);
}

}  // namespace gradmon

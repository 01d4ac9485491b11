// SPDX-License-Identifier: Apache-2.0
#include "control/agree/coordinator.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "control/agree/mutant.h"

namespace gradmon {
namespace {

constexpr Ticks kPrepareEvery{250};
constexpr Ticks kGiveUpAfter{10'000};
constexpr Ticks kWriteAgain{1000};
constexpr std::int64_t kMostLookahead = 256;
constexpr double kMostPatienceMs = 500;

Step later(Step a, Step b) { return a < b ? b : a; }

// Of two fences the one that binds: the later.
Step binding(Step a, Step b) { return mutated(Mutant::least_fence) == (a < b) ? a : b; }

std::string joined_names(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return text;
}

}  // namespace

CoordinatorActions& CoordinatorActions::operator+=(CoordinatorActions other) {
  std::move(other.send.begin(), other.send.end(), std::back_inserter(send));
  std::move(other.log.begin(), other.log.end(), std::back_inserter(log));
  std::move(other.warnings.begin(), other.warnings.end(), std::back_inserter(warnings));
  std::move(other.probed.begin(), other.probed.end(), std::back_inserter(probed));
  if (other.write) write = std::move(other.write);
  if (other.write_back) write_back = std::move(other.write_back);
  return *this;
}

Coordinator::Coordinator(Job job, Roster::LivenessOf liveness_of)
    : job_(std::move(job)),
      roster_({job_.world_size, job_.launcher_id, job_.start_iteration}, std::move(liveness_of)) {}

CoordinatorActions Coordinator::begin(PlanPtr first, WallTime now) {
  begun_ = true;
  starts_on_ = first != nullptr;
  CoordinatorActions actions;
  if (first) actions += propose(std::move(first), now);
  for (const Letter& letter : std::exchange(early_, {})) actions += on_letter(letter, now);
  return actions;
}

CoordinatorActions Coordinator::propose(PlanPtr plan, WallTime now) {
  Proposal proposal;
  HistoryEntry entry;
  entry.cause = name_of(plan->cause);
  entry.by = plan->by;
  entry.on = plan->on;
  entry.proposed_at = now;
  entry.request_id = plan->request_id;
  proposal.entry = journal_.add(std::move(entry));
  proposal.plan = std::move(plan);
  proposal.since = now;
  refusal_.clear();
  CoordinatorActions actions;
  enqueue(std::move(proposal), actions, now);
  return actions;
}

void Coordinator::enqueue(Proposal proposal, CoordinatorActions& actions, WallTime now) {
  if (waiting_) {
    if (HistoryEntry* entry = journal_.find(waiting_->entry)) {
      entry->verdict = "superseded";
      entry->reason = "superseded by a newer change (" + proposal.plan->by + ")";
      entry->final = true;
      journal_.touch(waiting_->entry);
    }
  }
  waiting_ = std::move(proposal);
  actions += advance(now);
}

Letter Coordinator::letter_to(int rank, Message message) const {
  return {job_.epoch, Rank{rank}, roster_.seat(rank).incarnation, std::move(message)};
}

CoordinatorActions Coordinator::tick(Ticks elapsed, WallTime now) {
  clock_ += elapsed;
  CoordinatorActions actions = advance(now);
  if (!begun_) return actions;
  look_for_end(actions);
  ask_around(actions);
  keep_budget(actions, now);
  return actions;
}

CoordinatorActions Coordinator::advance(WallTime now) {
  CoordinatorActions actions;
  if (!begun_) return actions;
  settle_home(actions);
  if (!open_ && waiting_ && waiting_->not_before <= clock_ && roster_.unready().empty()) {
    open_waiting(actions, now);
  }
  if (open_) {
    if (!open_->verdict && clock_ - open_->last_sent >= kPrepareEvery) send_prepare(actions, false);
    decide(actions);
  }
  return actions;
}

void Coordinator::settle_home(CoordinatorActions& actions) {
  if (last_.home != Home::undecided) return;
  last_.home = roster_.settle_home();
  if (last_.home == Home::undecided) return;
  if (last_.home == Home::store) {
    actions.log.push_back("the output directory is not the same on all ranks: verdicts go into the store");
  }
  tell_last_word(actions);
}

void Coordinator::tell_last_word(CoordinatorActions& actions) const {
  for (int rank = 0; rank < roster_.size(); ++rank) {
    if (roster_.seat(rank).answers()) actions.send.push_back(letter_to(rank, Decided{last_}));
  }
}

void Coordinator::open_waiting(CoordinatorActions& actions, WallTime now) {
  Open open;
  open.revision = next_;
  next_.value += 1;
  open.proposal = std::move(*waiting_);
  waiting_.reset();
  open.lookahead = lookahead_for(open.proposal);
  open.opened = clock_;
  if (HistoryEntry* entry = journal_.find(open.proposal.entry)) {
    entry->revision = open.revision;
    entry->proposed_at = now;
    journal_.touch(open.proposal.entry);
  }
  open_ = std::move(open);
  roster_.clear_answers();
  send_prepare(actions, true);
}

void Coordinator::send_prepare(CoordinatorActions& actions, bool everyone) {
  open_->last_sent = clock_;
  const Prepare prepare{open_->revision,  job_.process_id, open_->proposal.plan,
                        open_->lookahead, doubt_after(),   last_};
  for (int rank = 0; rank < roster_.size(); ++rank) {
    const Roster::Seat& seat = roster_.seat(rank);
    if (seat.answers() && (everyone || (!seat.ready && !seat.reject))) {
      actions.send.push_back(letter_to(rank, prepare));
    }
  }
}

Verdict Coordinator::abort(AbortReason reason, std::string text) const {
  Verdict verdict;
  verdict.revision = open_->revision;
  verdict.abort_reason = reason;
  verdict.reason = std::move(text);
  verdict.author = job_.process_id;
  return verdict;
}

// Quick while somebody is missing: it is asked for every letter, and ranks are many.
bool Coordinator::still_incomplete() {
  if (open_->rejected || clock_ - open_->opened >= kGiveUpAfter) return false;
  const auto answered = [&](int rank) {
    const Roster::Seat& seat = roster_.seat(rank);
    return seat.ready || seat.left();
  };
  while (open_->first_missing < roster_.size() && answered(open_->first_missing)) ++open_->first_missing;
  return open_->first_missing < roster_.size();
}

std::optional<Verdict> Coordinator::verdict_now() {
  if (!mutated(Mutant::silent_counts_as_gone) && still_incomplete()) return {};
  Step effective = later(job_.start_iteration + 1, last_.commit ? last_.commit->effective + 1 : Step{});
  std::optional<Step> fence;
  std::int64_t matches = 0;
  std::string unmatched;  // as the first rank that has something to say says it
  std::vector<int> missing;
  for (int rank = 0; rank < roster_.size(); ++rank) {
    const Roster::Seat& seat = roster_.seat(rank);
    if (seat.reject) {
      return abort(AbortReason::rejected,
                   "rejected by rank " + std::to_string(rank) + ": " + seat.reject->reason);
    }
    if (seat.ready) {
      fence = binding(fence.value_or(seat.ready->fence), seat.ready->fence);
      matches += seat.ready->matches;
      if (unmatched.empty()) unmatched = seat.ready->unmatched;
    } else if (seat.left()) {
      effective = later(effective, seat.last_step + 1);
    } else if (!mutated(Mutant::silent_counts_as_gone) || clock_ - seat.last_seen < Ticks{2000}) {
      missing.push_back(rank);
    }
  }
  if (!missing.empty()) {
    if (clock_ - open_->opened < kGiveUpAfter) return {};
    return abort(AbortReason::timed_out, joined_names(missing) + " did not answer");
  }
  open_->all_ready = true;
  const Plan& plan = *open_->proposal.plan;
  if (plan.on && matches == 0 && plan.collect_times > 0) {
    const std::string why = unmatched.empty() ? "" : ": " + unmatched;
    return abort(AbortReason::no_match, "no target matches on any rank" + why);
  }
  Verdict verdict;
  verdict.revision = open_->revision;
  verdict.plan = open_->proposal.plan;
  verdict.effective = later(effective, fence.value_or(effective));
  verdict.author = job_.process_id;
  return verdict;
}

void Coordinator::decide(CoordinatorActions& actions) {
  if (!open_->verdict) open_->verdict = verdict_now();
  if (!open_->verdict || open_->writing) return;
  if (open_->wrote != Ticks{} && clock_ - open_->wrote < kWriteAgain) return;
  open_->writing = true;
  actions.write = open_->verdict;
}

CoordinatorActions Coordinator::on_register(const tl::expected<Verdict, std::string>& verdict, WallTime now) {
  CoordinatorActions actions;
  if (!open_) return actions;
  open_->writing = false;
  open_->wrote = clock_;
  if (!verdict) {
    actions.warnings.push_back("register: " + verdict.error());
    return actions;
  }
  if (verdict->revision != open_->revision) return actions;
  close_open(*verdict, actions, now);
  actions += advance(now);
  return actions;
}

void Coordinator::close_open(const Verdict& verdict, CoordinatorActions& actions, WallTime now) {
  const auto took = static_cast<double>((clock_ - open_->opened).count());
  if (verdict.commit()) {
    decide_ms_ = 0.5 * decide_ms_ + 0.5 * took;
    patience_ms_ = std::max(decide_ms_, 0.5 * patience_ms_);
  } else {
    patience_ms_ = std::min(2 * patience_ms_, kMostPatienceMs);
  }
  last_.closed = verdict.revision;
  if (HistoryEntry* entry = journal_.find(open_->proposal.entry)) {
    entry->verdict = verdict.commit() ? "commit" : "abort";
    entry->reason = verdict.reason;
    entry->final = true;
    if (verdict.commit()) entry->effective_step = verdict.effective.value;
    journal_.touch(open_->proposal.entry);
  }
  if (verdict.commit()) {
    last_.commit = verdict;
    committed_.add(verdict);
    budget_.on_commit(*verdict.plan);
  }
  tell_last_word(actions);
  if (!verdict.commit()) retry(verdict, actions, now);
  open_.reset();
}

void Coordinator::retry(const Verdict& verdict, CoordinatorActions& actions, WallTime now) {
  const std::string what =
      "revision " + std::to_string(verdict.revision.value) + " aborted: " + verdict.reason;
  if (verdict.abort_reason == AbortReason::rejected || verdict.abort_reason == AbortReason::no_match) {
    refusal_ = verdict.reason;
    if (open_->proposal.plan->cause != Cause::resync)
      resynced_ = {};  // A missed one is still to be made good.
    actions.warnings.push_back(what);
    return;
  }
  Proposal again = open_->proposal;
  const bool ready_missing = !open_->all_ready && verdict.abort_reason != AbortReason::came_back;
  if (ready_missing) {
    again.not_before = clock_ + Ticks{1000} * std::min(60, 1 << std::min(again.attempts, 6));
    again.attempts += 1;
  } else if (verdict.abort_reason == AbortReason::doubt) {
    again.scale = std::min(again.scale * 2, kMostLookahead);
  }
  HistoryEntry* entry = journal_.find(again.entry);
  if (waiting_) {
    if (entry != nullptr) entry->reason += "; superseded by a newer change (" + waiting_->plan->by + ")";
    return;
  }
  actions.warnings.push_back(what + "; it is proposed again");
  HistoryEntry next;
  if (entry != nullptr) {
    entry->final = false;
    next = *entry;
  }
  next.revision = {};
  next.cause = name_of(Cause::retry);
  next.verdict.clear();
  next.reason.clear();
  again.entry = journal_.add(std::move(next));
  again.since = now;
  waiting_ = std::move(again);
}

void Coordinator::look_for_end(CoordinatorActions& actions) {
  const auto end = committed_.look_for_end(roster_, clock_);
  if (!end) return;
  if (!end->silent.empty()) {
    actions.warnings.push_back(joined_names(end->silent) + " did not report the end of revision " +
                               std::to_string(end->revision.value));
  }
  if (HistoryEntry* entry = journal_.find(end->revision)) {
    entry->finished_step = end->last.value;
    journal_.touch(end->revision);
  }
  if (end->file) actions.write_back = WriteBack{end->revision, *end->file};
}

CoordinatorActions Coordinator::probe(std::string id, PlanPtr plan) {
  probe_.ask(std::move(id), std::move(plan), clock_);
  CoordinatorActions actions;
  ask_around(actions);
  return actions;
}

// What is asked beside the agreement: who lives, and what a plan would mean.
void Coordinator::ask_around(CoordinatorActions& actions) {
  for (const auto& [rank, ping] : roster_.pings_due(clock_)) actions.send.push_back(letter_to(rank, ping));
  for (auto& [rank, probe] : probe_.due(roster_, clock_)) {
    actions.send.push_back(letter_to(rank, std::move(probe)));
  }
  actions.probed = probe_.take_ended(roster_, clock_);
}

void Coordinator::write_back_ended(Revision revision) { committed_.write_back_ended(revision); }

CoordinatorActions Coordinator::close() {
  CoordinatorActions actions;
  for (int rank = 1; rank < roster_.size(); ++rank) {
    if (roster_.seat(rank).answers()) actions.send.push_back(letter_to(rank, Closing{}));
  }
  return actions;
}

bool Coordinator::may_go() const {
  if (committed_.write_back_outstanding()) return false;
  for (int rank = 1; rank < roster_.size(); ++rank) {
    if (roster_.seat(rank).answers()) return false;
  }
  return true;
}

PlanPtr Coordinator::newest_plan() const {
  if (waiting_) return waiting_->plan;
  if (open_) return open_->proposal.plan;
  return last_.commit ? last_.commit->plan : nullptr;
}

bool Coordinator::newest_is_off() const {
  const PlanPtr newest = newest_plan();
  if (!newest || !newest->on) return true;
  return !waiting_ && !open_ && committed_.ended();
}

bool Coordinator::applied_by_all(Revision revision) const {
  for (int rank = 0; rank < roster_.size(); ++rank) {
    if (!roster_.seat(rank).has_applied(revision)) return false;
  }
  return true;
}

std::int64_t Coordinator::lookahead_for(const Proposal& proposal) const {
  std::int64_t base = 1;
  if (proposal.plan->lookahead) {
    base = *proposal.plan->lookahead;
  } else {
    double shortest = 0;
    for (int rank = 0; rank < roster_.size(); ++rank) {
      const double ms = roster_.seat(rank).progress.step_ms;
      if (ms > 0 && (shortest == 0 || ms < shortest)) shortest = ms;
    }
    if (shortest > 0) base = 1 + std::llround(std::ceil(std::min(decide_ms_ / shortest, 255.0)));
  }
  return std::min(base * proposal.scale, std::max(base, kMostLookahead));
}

Ticks Coordinator::doubt_after() const {
  return std::clamp(Ticks{std::llround(4 * patience_ms_)}, Ticks{50}, Ticks{2000});
}

}  // namespace gradmon

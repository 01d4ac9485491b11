// SPDX-License-Identifier: Apache-2.0
// The change of a coordinator that is open, the one that waits (Proposals), and the changes that a
// coordinator makes itself (OwnChanges).

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "control/agree/coordinator.h"
#include "control/agree/mutant.h"
#include "control/text/words.h"

namespace gradmon {
namespace {

constexpr Ticks kAskEvery{250};
constexpr int kAnswersPerMillisecond = 16;  // ranks that can answer a question in 1 ms
constexpr Ticks kLongestPrepareTimeout{1'000};
constexpr double kMostLookahead = 255;
constexpr int kMostCaptureAttempts = 3;
constexpr Ticks kStalled{5'000};
constexpr Ticks kUnended{60'000};

// The later of two fences, which decides the effective step.
Step binding(Step a, Step b) { return mutant_active(Mutant::least_fence) == (a < b) ? a : b; }

bool is_final(AbortReason reason) {
  return reason == AbortReason::rejected || reason == AbortReason::no_match ||
         reason == AbortReason::withdrawn;
}

}  // namespace

void Proposals::propose(PlanPtr plan) {
  Proposal proposal;
  proposal.entry = state_.journal.add(history_entry(*plan, state_.now));
  proposal.plan = std::move(plan);
  proposal.since = state_.now;
  const bool own = !is_of_user(*proposal.plan);
  if (own && waiting_ && is_of_user(*waiting_->plan))
    return finish_entry(proposal, "superseded", "a change by the user is waiting");
  // The open revision is withdrawn if no rank has promised anything yet, or if the new plan is off.
  const bool withdraws = open_ && (!own || !is_of_user(*open_->proposal.plan)) &&
                         (!proposal.plan->on || open_->stage == Stage::offering);
  const std::string why = "superseded by a newer change (" + proposal.plan->by + ")";
  if (withdraws) conclude(abort(AbortReason::withdrawn, why));
  state_.refusal.clear();
  forget_waiting("superseded", why);
  waiting_ = std::move(proposal);
}

void Proposals::finish_entry(const Proposal& proposal, const std::string& verdict, const std::string& why) {
  HistoryEntry* entry = state_.journal.find(proposal.entry);
  if (entry == nullptr) return;
  entry->verdict = verdict;
  entry->reason = why;
  entry->final = true;
  state_.journal.touch(proposal.entry);
}

void Proposals::forget_waiting(const std::string& verdict, const std::string& why) {
  if (!waiting_) return;
  finish_entry(*waiting_, verdict, why);
  waiting_.reset();
}

bool Proposals::cancel(const std::string& by) {
  if (!open_ && !waiting_) return false;
  if (open_) conclude(abort(AbortReason::withdrawn, "withdrawn by " + by));
  forget_waiting("withdrawn", "withdrawn by " + by);
  return true;
}

void Proposals::on_answer(Membership::Member& member, const Message& message) {
  if (!open_) return;
  const bool on = open_->proposal.plan->on;
  const auto ours = [this](Revision revision) { return revision == open_->revision; };
  const auto* offered = std::get_if<Offered>(&message);
  const auto* reject = std::get_if<Reject>(&message);
  const auto* ready = std::get_if<Ready>(&message);
  const auto* busy = std::get_if<Busy>(&message);
  if (offered != nullptr && ours(offered->revision)) member.offered = *offered;
  if (ready != nullptr && ours(ready->revision) && !member.ready &&
      ready->config_sha256 == open_->proposal.plan->config_sha256)
    member.ready = *ready;
  if (reject != nullptr && ours(reject->revision) && on) member.reject = *reject;
  if (busy != nullptr && ours(busy->revision) && on) member.busy = *busy;
  open_->objected = open_->objected || member.reject || member.busy;
}

void Proposals::on_joined(Membership::Member& member) {
  if (!open_) return;
  if (open_->proposal.plan->on) member.asked = true;
  open_->first_missing = 0;
}

void Proposals::on_heard(int rank) {
  if (!waiting_ || waiting_->not_before <= state_.clock) return;
  auto& missed = waiting_->missed;
  if (std::find(missed.begin(), missed.end(), rank) == missed.end()) return;
  waiting_->not_before = state_.clock;
  missed.clear();
}

void Proposals::on_departed() {
  if (waiting_) waiting_->not_before = std::min(waiting_->not_before, state_.clock);
}

void Proposals::restore(const OfferedEntry& open, HistoryEntry entry) {
  Open aborted;
  aborted.revision = open.revision;
  aborted.proposal.plan = open.plan;
  aborted.proposal.since = state_.now;
  aborted.proposal.entry = state_.journal.add(std::move(entry));
  open_ = std::move(aborted);
  conclude(abort(AbortReason::restarted, "the hub restarted"));
  if (!waiting_) return;
  waiting_->not_before = state_.clock;
  waiting_->restored = true;
}

void Proposals::catch_up(Revision closed) {
  if (open_ && open_->revision <= closed)
    conclude(abort(AbortReason::restarted, "its revision number was already used before the hub restarted"));
  if (state_.next <= closed) state_.next = {closed.value + 1};
  if (state_.last.closed < closed) state_.last.closed = closed;
}

void Proposals::advance() {
  const bool due = !open_ && waiting_ && waiting_->not_before <= state_.clock;
  // No rank is asked for a promise while a commit is impossible. Off needs no promises.
  if (due && (!waiting_->plan->on || state_.why_not_ready().empty())) open_waiting();
  if (open_) decide();
  if (open_ && state_.clock - open_->last_sent >= ask_every()) ask(Recipients::unanswered);
}

void Proposals::open_waiting() {
  // After a restart, a revision number that is not in the log could be given to a second plan.
  const bool logged = state_.note(OfferedEntry{state_.next, waiting_->plan, state_.now});
  if (!logged && waiting_->plan->on) {
    waiting_->not_before = state_.clock + Ticks{1000};
    return;
  }
  Open open;
  open.revision = state_.next;
  state_.next.value += 1;
  open.proposal = std::move(*waiting_);
  waiting_.reset();
  open.stage = open.proposal.plan->on ? Stage::offering : Stage::promising;
  open.lookahead = lookahead_for(*open.proposal.plan);
  open.opened = state_.clock;
  if (HistoryEntry* entry = state_.journal.find(open.proposal.entry)) {
    entry->revision = open.revision;
    entry->proposed_at = state_.now;
    state_.journal.touch(open.proposal.entry);
  }
  open_ = std::move(open);
  state_.members.clear_answers();
  for (int rank = 0; rank < state_.members.size(); ++rank) {
    Membership::Member& member = state_.members.of(rank);
    member.asked =
        member.takes_part() && (open_->proposal.plan->on || state_.members.heard(member, state_.clock));
  }
  ask(Recipients::all);
}

// Many ranks need longer to answer. Asking again before they can have answered only adds work.
Ticks Proposals::ask_every() const {
  return std::max(kAskEvery, Ticks{state_.members.size() / kAnswersPerMillisecond});
}

bool Proposals::answered(const Membership::Member& member) const {
  if (!member.asked || !member.takes_part()) return true;
  return open_->stage == Stage::offering ? member.offered.has_value() : member.ready.has_value();
}

void Proposals::ask(Recipients recipients) {
  open_->last_sent = state_.clock;
  Outgoing offer{{}, Offer{open_->revision, open_->proposal.plan}};
  Outgoing prepare{
      {}, Prepare{open_->revision, open_->proposal.plan->config_sha256, open_->lookahead, state_.last}};
  for (int rank = 0; rank < state_.members.size(); ++rank) {
    const Membership::Member& member = state_.members.of(rank);
    if (!member.asked || !member.takes_part()) continue;
    if (recipients == Recipients::unanswered && answered(member)) continue;
    if (!member.offered) offer.to.emplace_back(rank, member.incarnation);
    if (open_->stage == Stage::promising) prepare.to.emplace_back(rank, member.incarnation);
  }
  for (Outgoing* one : {&offer, &prepare}) {
    if (!one->to.empty()) state_.out.send.push_back(std::move(*one));
  }
}

void Proposals::promise_stage() {
  open_->stage = Stage::promising;
  open_->opened = state_.clock;
  open_->first_missing = 0;
  ask(Recipients::all);
}

Verdict Proposals::abort(AbortReason reason, std::string text) const {
  Verdict verdict;
  verdict.revision = open_->revision;
  verdict.abort_reason = reason;
  verdict.reason = std::move(text);
  return verdict;
}

Ticks Proposals::prepare_timeout() const {
  return std::min(kLongestPrepareTimeout, std::max(open_->proposal.plan->max_wait / 2, Ticks{50}));
}

// At most 101 ranks. Called for every message, so it skips the ranks below first_missing.
std::vector<int> Proposals::missing() {
  while (open_->first_missing < state_.members.size() && answered(state_.members.of(open_->first_missing)))
    ++open_->first_missing;
  std::vector<int> ranks;
  for (int rank = open_->first_missing; rank < state_.members.size(); ++rank) {
    if (!answered(state_.members.of(rank))) ranks.push_back(rank);
    if (ranks.size() > 100) break;
  }
  return ranks;
}

std::optional<Verdict> Proposals::objection() const {
  if (!open_->objected) return {};
  for (int rank = 0; rank < state_.members.size(); ++rank) {
    const Membership::Member& member = state_.members.of(rank);
    const std::string who = "rank " + std::to_string(rank);
    if (member.reject)
      return abort(AbortReason::rejected, "rejected by " + who + ": " + member.reject->reason);
    if (member.busy) return abort(AbortReason::busy, who + " is busy: " + member.busy->reason);
  }
  return {};
}

std::optional<Verdict> Proposals::no_match() const {
  const Plan& plan = *open_->proposal.plan;
  if (!plan.on || plan.collect_times == 0) return {};
  std::string unmatched;  // from the first rank that names any
  for (const Membership::Member& member : state_.members) {
    const auto& offered = member.offered;
    if (!offered) continue;
    if (offered->matches > 0) return {};
    if (unmatched.empty()) unmatched = offered->unmatched;
  }
  return abort(AbortReason::no_match,
               "no target matches on any rank" + (unmatched.empty() ? "" : ": " + unmatched));
}

Verdict Proposals::commit() const {
  Verdict verdict;
  verdict.revision = open_->revision;
  verdict.plan = open_->proposal.plan;
  Step effective = state_.last.commit ? state_.last.commit->effective + 1 : Step{};
  if (state_.inherited_effective) effective = std::max(effective, *state_.inherited_effective + 1);
  if (const auto last = state_.members.last_departed_step();
      last && !mutant_active(Mutant::effective_below_dropped))
    effective = std::max(effective, *last + 1);
  std::optional<Step> fence;
  for (const Membership::Member& member : state_.members) {
    if (member.phase == Membership::Phase::member)
      effective = std::max(effective, member.hello.start_iteration + 1);
    if (member.ready) fence = binding(fence.value_or(member.ready->fence), member.ready->fence);
  }
  verdict.effective = std::max(effective, fence.value_or(effective));
  return verdict;
}

void Proposals::decide() {
  if (auto objected = objection()) return conclude(std::move(*objected));
  std::vector<int> absent = missing();
  if (mutant_active(Mutant::silent_counts_as_gone) && state_.clock - open_->opened >= kLongestPrepareTimeout)
    absent.clear();
  if (absent.empty()) {
    if (open_->stage == Stage::promising) return conclude(commit());
    if (auto nothing = no_match()) return conclude(std::move(*nothing));
    return promise_stage();
  }
  if (open_->stage == Stage::offering) {
    const auto silent = [&](int rank) {
      return !state_.members.heard(state_.members.of(rank), state_.clock);
    };
    absent.erase(std::remove_if(absent.begin(), absent.end(), [&](int rank) { return !silent(rank); }),
                 absent.end());
    if (absent.empty()) return;
  } else if (state_.clock - open_->opened < prepare_timeout()) {
    return;
  } else if (!open_->proposal.plan->on) {
    return conclude(commit());  // Silent ranks go off when their lease runs out.
  }
  open_->proposal.missed = absent;
  conclude(abort(AbortReason::timed_out, names_of_ranks(absent) + " did not answer"));
}

void Proposals::conclude(Verdict verdict) {
  const bool off = verdict.commit() && !verdict.plan->on;
  const bool logged = mutant_active(Mutant::sent_before_logged) || state_.note(verdict);
  if (!logged && verdict.commit() && !off)
    verdict = abort(AbortReason::not_logged, "the verdict could not be written to the decision log");
  close_open(verdict);
}

void Proposals::close_open(const Verdict& verdict) {
  state_.last.closed = std::max(state_.last.closed, verdict.revision);
  if (HistoryEntry* entry = state_.journal.find(open_->proposal.entry)) {
    enter_verdict(*entry, verdict);
    state_.journal.touch(open_->proposal.entry);
  }
  if (verdict.commit()) {
    decide_ms_ = 0.5 * decide_ms_ + 0.5 * static_cast<double>((state_.clock - open_->opened).count());
    state_.take_commit(verdict);
  }
  state_.send_known_decisions();
  if (!verdict.commit()) retry(verdict);
  open_.reset();
}

void Proposals::retry(const Verdict& verdict) {
  const std::string what =
      "revision " + std::to_string(verdict.revision.value) + " aborted: " + verdict.reason;
  const bool capture = open_->proposal.plan->returns_to != nullptr;
  // A capture shows the steps right after its alert. A late capture would show other steps.
  const bool too_late = capture && (verdict.abort_reason == AbortReason::busy ||
                                    open_->proposal.attempts + 1 >= kMostCaptureAttempts);
  if (is_final(verdict.abort_reason) || too_late) {
    if (verdict.abort_reason == AbortReason::withdrawn) return;
    if (!capture) state_.refusal = verdict.reason;  // The plan before it goes on.
    if (open_->proposal.plan->cause == Cause::resync) state_.ranks_to_start.clear();
    state_.out.warnings.push_back(what);
    return;
  }
  Proposal again = open_->proposal;
  again.not_before = state_.clock + Ticks{1000} * std::min(60, 1 << std::min(again.attempts, 6));
  again.attempts += 1;
  again.last_abort = verdict.reason;
  HistoryEntry* entry = state_.journal.find(again.entry);
  if (waiting_ && !is_of_user(*waiting_->plan) && is_of_user(*again.plan))
    forget_waiting("superseded", "a change by the user is waiting");
  if (waiting_) {
    if (entry != nullptr) entry->reason += "; superseded by a newer change (" + waiting_->plan->by + ")";
    return;
  }
  if (again.attempts == 1) state_.out.warnings.push_back(what + "; it will be retried");
  HistoryEntry next;
  if (entry != nullptr) {
    entry->final = false;
    next = *entry;
  }
  next.revision = {};
  next.cause = name_of(Cause::retry);
  next.verdict.clear();
  next.reason.clear();
  again.entry = state_.journal.add(std::move(next));
  again.since = state_.now;
  waiting_ = std::move(again);
}

PlanPtr Proposals::newest_plan() const {
  if (waiting_) return waiting_->plan;
  return open_ ? open_->proposal.plan : nullptr;
}

// The expected time from Prepare to commit, in steps of the fastest rank.
std::int64_t Proposals::lookahead_for(const Plan& plan) const {
  if (plan.lookahead) return *plan.lookahead;
  double shortest = 0;
  for (const Membership::Member& member : state_.members) {
    const double ms = member.progress.step_ms;
    if (ms > 0 && (shortest == 0 || ms < shortest)) shortest = ms;
  }
  if (shortest == 0 || decide_ms_ <= shortest / 5) return 1;
  return 1 + std::llround(std::ceil(std::min(decide_ms_ / shortest, kMostLookahead)));
}

// "rank 2", or "rank 2 (not heard for 8 s)" if the rank is silent.
std::string Proposals::awaited(int rank) const {
  const Membership::Member& member = state_.members.of(rank);
  std::string text = "rank " + std::to_string(rank);
  if (!state_.members.heard(member, state_.clock))
    text += " (not heard for " + std::to_string((state_.clock - member.last_heard).count() / 1000) + " s)";
  return text;
}

std::optional<Pending> Proposals::describe() const {
  if (open_) {
    std::vector<int> awaited_ranks;
    for (int rank = 0; rank < state_.members.size(); ++rank) {
      if (!answered(state_.members.of(rank))) awaited_ranks.push_back(rank);
    }
    std::string reason = "being decided";
    if (awaited_ranks.size() == 1) reason = "waiting for the answer of " + awaited(awaited_ranks.front());
    if (awaited_ranks.size() > 1) reason = "waiting for the answers of " + names_of_ranks(awaited_ranks);
    return Pending{open_->revision, reason, open_->proposal.since};
  }
  if (waiting_) {
    const std::string obstacle = waiting_->plan->on ? state_.why_not_ready() : "";
    const std::string& why = waiting_->last_abort;
    const std::string retry = "waiting to be retried" + (why.empty() ? "" : ": " + why);
    return Pending{{}, obstacle.empty() ? retry : obstacle, waiting_->since};
  }
  if (state_.committed.newest() == nullptr) return {};
  const CommittedPlan& newest = *state_.committed.newest();
  for (int rank = 0; rank < state_.members.size(); ++rank) {
    const Membership::Member& member = state_.members.of(rank);
    if (member.phase == Membership::Phase::absent || member.has_applied(newest.verdict.revision)) continue;
    const Ticks stalled = state_.clock - member.last_moved;
    const std::string seconds = std::to_string(stalled.count() / 1000) + " s";
    const std::string name = "rank " + std::to_string(rank);
    const std::string why =
        stalled >= kUnended ? name + ": no step has ended for " + seconds +
                                  "; if training runs, its step is captured: call monitor.step()"
        : stalled >= kStalled ? name + " has not stepped for " + seconds
                              : "takes effect at step " + std::to_string(newest.verdict.effective.value);
    return Pending{newest.verdict.revision, why, 0};
  }
  return {};
}

void OwnChanges::note_earlier_epoch(const Hello& hello) {
  if (hello.held_epoch.empty() || hello.held_epoch == state_.job.epoch) return;
  state_.log_lost = true;
  state_.members.plan_was_effective();  // possibly; its log is lost
}

void OwnChanges::on_joined(const Hello& hello) {
  const Verdict& held = *hello.held;
  if (hello.held_epoch == state_.job.epoch) {
    if (held.revision > state_.last.closed) adopt_unlogged_off(held);
    return proposals_.catch_up(held.revision);
  }
  if (!state_.inherited_effective || *state_.inherited_effective < held.effective)
    state_.inherited_effective = held.effective;
  if (state_.last.commit || (inherited_ && held.revision <= inherited_->revision)) return;
  inherited_ = held;
  inherited_proposed_ = false;
  if (state_.next <= held.revision) state_.next = {held.revision.value + 1};
}

// Takes over Off from a rank. Off is the only verdict that is sent even if the log could not take it.
void OwnChanges::adopt_unlogged_off(const Verdict& off) {
  if (off.plan->on) return;
  state_.last.closed = off.revision;
  state_.take_commit(off);
  state_.note(off);
  if (const auto* waiting = proposals_.waiting(); waiting != nullptr && waiting->restored)
    proposals_.forget_waiting("superseded", "superseded by a newer change (" + off.plan->by + ")");
  state_.send_known_decisions();
}

void OwnChanges::propose_inherited() {
  if (!inherited_ || inherited_proposed_ || proposals_.is_open() || state_.last.commit ||
      !state_.why_not_ready().empty())
    return;
  inherited_proposed_ = true;
  const Plan& held = *inherited_->plan;
  const auto* waiting = proposals_.waiting();
  const bool asked_since =
      waiting != nullptr && waiting->plan != from_file_ && waiting->plan->cause != Cause::resync;
  if (asked_since) return;
  if (from_file_ && from_file_->file && config_save(held) && *from_file_->file != *config_save(held)) {
    if (waiting == nullptr) proposals_.propose(from_file_);
    return;
  }
  const std::string why = "the ranks still hold revision " + std::to_string(inherited_->revision.value);
  proposals_.forget_waiting("superseded", why);
  auto plan = std::make_shared<Plan>(held);
  if (held.on) plan->continues = schedule_of(held, inherited_->effective);
  plan->cause = Cause::resync;
  plan->by = "gradmon (" + why + ")";
  plan->request_id.clear();
  proposals_.propose(std::move(plan));
}

// A copy of the newest committed plan. Collects only the steps still missing when that plan is replaced.
std::shared_ptr<Plan> OwnChanges::copy_with_remaining_steps(Cause cause, std::string by) const {
  auto plan = std::make_shared<Plan>(*state_.last.commit->plan);
  plan->continues = state_.committed.newest()->schedule;
  plan->cause = cause;
  plan->by = std::move(by);
  plan->request_id.clear();
  // The plan that follows a capture has collected nothing since the capture began.
  if (plan->returns_to && plan->returns_to->continues) {
    auto next = std::make_shared<Plan>(*plan->returns_to);
    next->continues = left_at(*next->continues, state_.last.commit->effective);
    plan->returns_to = std::move(next);
  }
  return plan;
}

bool OwnChanges::can_capture() const {
  if (proposals_.busy() || !state_.collects()) return false;
  return !state_.last.commit->plan->returns_to && state_.committed.newest()->schedule.times() > 0;
}

void OwnChanges::capture(std::shared_ptr<Plan> richer) {
  richer->on = true;
  richer->cause = Cause::alert;
  richer->file.reset();
  richer->returns_to = copy_with_remaining_steps(Cause::alert, "the end of the capture");
  proposals_.propose(std::move(richer));
}

void OwnChanges::propose_due() {
  resync();
  keep_budget();
  return_from_capture();
}

// A return that is refused or withdrawn is not proposed again: collecting stays off, and the status says why.
void OwnChanges::return_from_capture() {
  if (proposals_.busy() || !state_.last.commit || !state_.committed.ended()) return;
  const Verdict& capture = *state_.last.commit;
  if (!capture.plan->returns_to || returned_ == capture.revision) return;
  returned_ = capture.revision;
  auto plan = std::make_shared<Plan>(*capture.plan->returns_to);
  if (plan->continues) plan->continues = left_at(*plan->continues, capture.effective);
  state_.out.log.push_back("the capture of revision " + std::to_string(capture.revision.value) +
                           " is complete: returning to the plan before it");
  proposals_.propose(std::move(plan));
}

void OwnChanges::resync() {
  if (state_.ranks_to_start.empty() || proposals_.busy()) return;  // an open change has the same effect
  if (!state_.collects()) return state_.ranks_to_start.clear();
  const std::vector<int> ranks(state_.ranks_to_start.begin(), state_.ranks_to_start.end());
  auto plan = copy_with_remaining_steps(
      Cause::resync, names_of_ranks(ranks) + (ranks.size() == 1 ? " has" : " have") + " rejoined");
  state_.out.log.push_back(plan->by + ": proposing the plan again for all ranks");
  proposals_.propose(std::move(plan));
}

void OwnChanges::keep_budget() {
  if (proposals_.busy() || !state_.collects()) return;
  const CommittedPlan& newest = *state_.committed.newest();
  const Plan& in_force = *newest.verdict.plan;
  if (!in_force.max_overhead) return;
  std::vector<OverheadBudget::RankCost> costs;
  for (int rank = 0; rank < state_.members.size(); ++rank) {
    const Membership::Member& member = state_.members.of(rank);
    if (!member.takes_part()) continue;
    if (member.progress.step >= newest.schedule.end()) return;
    costs.push_back({rank, member.progress.overhead});
  }
  const auto change = state_.budget.change_due(in_force, newest.verdict.revision, costs);
  if (!change) return;
  auto plan = copy_with_remaining_steps(Cause::budget, "the budget (" + change->why + ")");
  plan->on = change->on;
  plan->step_interval = change->step_interval;
  state_.out.log.push_back("max_overhead: " + change->why);
  proposals_.propose(std::move(plan));
}

void OwnChanges::check_ended() {
  const auto end = state_.committed.check_ended(state_.members, state_.clock);
  if (!end) return;
  if (!end->silent.empty()) {
    state_.out.warnings.push_back(names_of_ranks(end->silent) + " did not report the end of revision " +
                                  std::to_string(end->revision.value));
  }
  if (HistoryEntry* entry = state_.journal.find(end->revision)) {
    entry->finished_step = end->last.value;
    state_.journal.touch(end->revision);
  }
  if (!end->file) return end_write_back(end->revision);
  state_.out.write_back = WriteBack{end->revision, *end->file};
}

void OwnChanges::end_write_back(Revision revision) {
  state_.committed.write_back_ended(revision);
  if (end_logged_ == revision) return;  // Failed write-backs are retried repeatedly.
  if (state_.log.append(WrittenBackEntry{revision})) end_logged_ = revision;
}

void OwnChanges::restore_end(Revision revision) {
  state_.committed.write_back_ended(revision);
  end_logged_ = revision;
  if (HistoryEntry* entry = state_.journal.find(revision)) entry->finished_step = entry->steps.last().value;
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "control/agree/coordinator.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "control/agree/mutant.h"

namespace gradmon {
namespace {

constexpr Ticks kAskEvery{250};
constexpr int kAnswersPerMillisecond = 16;  // ranks that can answer a question in 1 ms
constexpr Ticks kLongestPrepareTimeout{1'000};
constexpr Ticks kLongestTick{1'000};
constexpr double kMostLookahead = 255;
constexpr int kMostCaptureAttempts = 3;
constexpr Ticks kFinishTimeout{10'000};

// The later of two fences, which decides the effective step.
Step binding(Step a, Step b) { return mutant_active(Mutant::least_fence) == (a < b) ? a : b; }

bool is_final(AbortReason reason) {
  return reason == AbortReason::rejected || reason == AbortReason::no_match ||
         reason == AbortReason::withdrawn;
}

}  // namespace

void CommittedPlans::add(const Verdict& commit) {
  plans_.push_back({commit, schedule_of(*commit.plan, commit.effective), false});
  ended_ = written_back_ = false;
  passed_.reset();
}

bool CommittedPlans::announce(Revision revision) {
  for (CommittedPlan& each : plans_) {
    if (each.verdict.revision == revision) return !std::exchange(each.announced, true);
  }
  return false;
}

void CommittedPlans::forget_before(Revision revision) {
  plans_.erase(std::remove_if(plans_.begin(), plans_.end(),
                              [&](const CommittedPlan& each) { return each.verdict.revision < revision; }),
               plans_.end());
}

const CommittedPlan* CommittedPlans::find(Revision revision) const {
  for (const CommittedPlan& each : plans_) {
    if (each.verdict.revision == revision) return &each;
  }
  return nullptr;
}

const CommittedPlan* CommittedPlans::newest() const { return plans_.empty() ? nullptr : &plans_.back(); }

std::optional<CommittedPlans::End> CommittedPlans::check_ended(const Membership& members, Ticks now) {
  if (plans_.empty() || ended_) return {};
  const CommittedPlan& newest = plans_.back();
  const Step end = newest.schedule.end();
  // A plan that the budget turned off also ends. It has no rows, so `applied` stands for `finished`.
  const bool on = newest.verdict.plan->on;
  const bool by_itself = newest.verdict.plan->continues.has_value();
  if ((!on && !by_itself) || end == kNever) return {};
  const Revision revision = newest.verdict.revision;
  std::vector<int> silent;
  bool passed = true;
  bool reached = false;
  for (int rank = 0; rank < members.size(); ++rank) {
    const Membership::Member& member = members.of(rank);
    reached = reached || (member.left() ? member.last_step + 1 : member.progress.step) >= end;
    if (on ? member.has_finished(revision) : member.has_applied(revision)) continue;
    silent.push_back(rank);
    const bool steps = now - member.last_moved < kFinishTimeout;
    if (steps && member.progress.step < end) passed = false;
  }
  // If all ranks left before the end, training has ended, not the plan.
  if (!reached) return {};
  if (!silent.empty()) {
    if (!passed) {
      passed_.reset();
      return {};
    }
    if (!passed_) passed_ = now;
    if (now - *passed_ < kFinishTimeout) return {};
  }
  ended_ = true;
  written_back_ = !newest.verdict.plan->file;
  return End{revision, newest.schedule.last(), std::move(silent), newest.verdict.plan->file};
}

void CommittedPlans::write_back_ended(Revision revision) {
  if (!plans_.empty() && plans_.back().verdict.revision == revision) ended_ = written_back_ = true;
}

CoordinatorActions& CoordinatorActions::operator+=(CoordinatorActions other) {
  std::move(other.send.begin(), other.send.end(), std::back_inserter(send));
  std::move(other.log.begin(), other.log.end(), std::back_inserter(log));
  std::move(other.warnings.begin(), other.warnings.end(), std::back_inserter(warnings));
  std::move(other.dry_runs.begin(), other.dry_runs.end(), std::back_inserter(dry_runs));
  if (other.write_back) write_back = std::move(other.write_back);
  return *this;
}

Coordinator::Coordinator(Job job, DecisionLog& log)
    : job_(std::move(job)), log_(log), members_({job_.world_size, job_.launch_id}), order_(job_.started) {}

CoordinatorActions Coordinator::propose(PlanPtr plan, WallTime now) {
  CoordinatorActions actions;
  Proposal proposal;
  proposal.entry = journal_.add(history_entry(*plan, now));
  proposal.plan = std::move(plan);
  proposal.since = now;
  const bool own = !is_of_user(*proposal.plan);
  if (own && waiting_ && is_of_user(*waiting_->plan)) {
    finish_entry(proposal, "superseded", "a change by the user is waiting");
    return actions;
  }
  // The open revision is withdrawn if no rank has promised anything yet, or if the new plan is off.
  const bool withdraws = open_ && (!own || !is_of_user(*open_->proposal.plan)) &&
                         (!proposal.plan->on || open_->stage == Stage::offering);
  if (withdraws) withdraw_open("superseded by a newer change (" + proposal.plan->by + ")", actions, now);
  refusal_.clear();
  enqueue(std::move(proposal), actions, now);
  return actions;
}

void Coordinator::finish_entry(const Proposal& proposal, const std::string& verdict, const std::string& why) {
  HistoryEntry* entry = journal_.find(proposal.entry);
  if (entry == nullptr) return;
  entry->verdict = verdict;
  entry->reason = why;
  entry->final = true;
  journal_.touch(proposal.entry);
}

void Coordinator::enqueue(Proposal proposal, CoordinatorActions& actions, WallTime now) {
  forget_waiting("superseded", "superseded by a newer change (" + proposal.plan->by + ")");
  waiting_ = std::move(proposal);
  actions += advance(now);
}

void Coordinator::forget_waiting(const std::string& verdict, const std::string& why) {
  if (!waiting_) return;
  finish_entry(*waiting_, verdict, why);
  waiting_.reset();
}

bool Coordinator::cancel(const std::string& by, CoordinatorActions& actions, WallTime now) {
  if (!open_ && !waiting_) return false;
  if (open_) withdraw_open("withdrawn by " + by, actions, now);
  forget_waiting("withdrawn", "withdrawn by " + by);
  return true;
}

void Coordinator::withdraw_open(const std::string& why, CoordinatorActions& actions, WallTime now) {
  conclude(abort(AbortReason::withdrawn, why), actions, now);
}

void Coordinator::send(int rank, Message message, CoordinatorActions& actions) const {
  actions.send.push_back({{{rank, members_.of(rank).incarnation}}, std::move(message)});
}

bool Coordinator::note(const LogEntry& entry, CoordinatorActions& actions) {
  const auto logged = log_.append(entry);
  const std::string before = std::exchange(log_error_, logged ? "" : logged.error());
  if (!logged && log_error_ != before) actions.warnings.push_back("decision log: " + log_error_);
  return logged.has_value();
}

CoordinatorActions Coordinator::tick(Ticks elapsed, WallTime now) {
  clock_ += std::min(elapsed, kLongestTick);
  CoordinatorActions actions;
  if (!begun_) return actions;
  check_silent_ranks(actions);
  stop_waiting_for_absent();
  actions += advance(now);
  check_ended(actions);
  advance_dry_runs(actions);
  resync(actions, now);
  keep_budget(actions, now);
  return_from_capture(actions, now);
  return actions;
}

void Coordinator::check_silent_ranks(CoordinatorActions& actions) {
  for (const int rank : members_.drop_silent(clock_)) note_departure(rank, actions);
}

CoordinatorActions Coordinator::advance(WallTime now) {
  CoordinatorActions actions;
  if (!begun_) return actions;
  propose_inherited(actions, now);
  if (!open_ && waiting_ && waiting_->not_before <= clock_ && may_open(*waiting_)) open_waiting(actions, now);
  if (open_) decide(actions, now);
  if (open_ && clock_ - open_->last_sent >= ask_every()) ask(actions, Recipients::unanswered);
  return actions;
}

// No rank is asked for a promise while a commit is impossible. Off needs no promises.
bool Coordinator::may_open(const Proposal& proposal) const {
  return !proposal.plan->on || why_not_ready().empty();
}

void Coordinator::open_waiting(CoordinatorActions& actions, WallTime now) {
  // After a restart, a revision number that is not in the log could be given to a second plan.
  const bool logged = note(OfferedEntry{next_, waiting_->plan, now}, actions);
  if (!logged && waiting_->plan->on) {
    waiting_->not_before = clock_ + Ticks{1000};
    return;
  }
  Open open;
  open.revision = next_;
  next_.value += 1;
  open.proposal = std::move(*waiting_);
  waiting_.reset();
  open.stage = open.proposal.plan->on ? Stage::offering : Stage::promising;
  open.lookahead = lookahead_for(*open.proposal.plan);
  open.opened = clock_;
  if (HistoryEntry* entry = journal_.find(open.proposal.entry)) {
    entry->revision = open.revision;
    entry->proposed_at = now;
    journal_.touch(open.proposal.entry);
  }
  open_ = std::move(open);
  members_.clear_answers();
  for (int rank = 0; rank < members_.size(); ++rank) {
    RankMember& member = members_.of(rank);
    member.asked = member.takes_part() && (open_->proposal.plan->on || members_.heard(member, clock_));
  }
  ask(actions, Recipients::all);
}

// Many ranks need longer to answer. Asking again before they can have answered only adds work.
Ticks Coordinator::ask_every() const {
  return std::max(kAskEvery, Ticks{members_.size() / kAnswersPerMillisecond});
}

bool Coordinator::answered(const RankMember& member) const {
  if (!member.asked || !member.takes_part()) return true;
  return open_->stage == Stage::offering ? member.offered.has_value() : member.ready.has_value();
}

void Coordinator::ask(CoordinatorActions& actions, Recipients recipients) {
  open_->last_sent = clock_;
  Outgoing offer{{}, Offer{open_->revision, open_->proposal.plan}};
  Outgoing prepare{{},
                   Prepare{open_->revision, open_->proposal.plan->config_sha256, open_->lookahead, last_}};
  for (int rank = 0; rank < members_.size(); ++rank) {
    const RankMember& member = members_.of(rank);
    if (!member.asked || !member.takes_part()) continue;
    if (recipients == Recipients::unanswered && answered(member)) continue;
    if (!member.offered) offer.to.emplace_back(rank, member.incarnation);
    if (open_->stage == Stage::promising) prepare.to.emplace_back(rank, member.incarnation);
  }
  for (Outgoing* one : {&offer, &prepare}) {
    if (!one->to.empty()) actions.send.push_back(std::move(*one));
  }
}

void Coordinator::promise_stage(CoordinatorActions& actions) {
  open_->stage = Stage::promising;
  open_->opened = clock_;
  open_->first_missing = 0;
  ask(actions, Recipients::all);
}

Verdict Coordinator::abort(AbortReason reason, std::string text) const {
  Verdict verdict;
  verdict.revision = open_->revision;
  verdict.abort_reason = reason;
  verdict.reason = std::move(text);
  return verdict;
}

Ticks Coordinator::prepare_timeout() const {
  return std::min(kLongestPrepareTimeout, std::max(open_->proposal.plan->max_wait / 2, Ticks{50}));
}

// At most 101 ranks. Called for every message, so it skips the ranks below first_missing.
std::vector<int> Coordinator::missing() {
  while (open_->first_missing < members_.size() && answered(members_.of(open_->first_missing)))
    ++open_->first_missing;
  std::vector<int> ranks;
  for (int rank = open_->first_missing; rank < members_.size(); ++rank) {
    if (!answered(members_.of(rank))) ranks.push_back(rank);
    if (ranks.size() > 100) break;
  }
  return ranks;
}

std::optional<Verdict> Coordinator::objection() const {
  if (!open_->objected) return {};
  for (int rank = 0; rank < members_.size(); ++rank) {
    const RankMember& member = members_.of(rank);
    const std::string who = "rank " + std::to_string(rank);
    if (member.reject)
      return abort(AbortReason::rejected, "rejected by " + who + ": " + member.reject->reason);
    if (member.busy) return abort(AbortReason::busy, who + " is busy: " + member.busy->reason);
  }
  return {};
}

std::optional<Verdict> Coordinator::no_match() const {
  const Plan& plan = *open_->proposal.plan;
  if (!plan.on || plan.collect_times == 0) return {};
  std::string unmatched;  // from the first rank that names any
  for (const RankMember& member : members_) {
    const auto& offered = member.offered;
    if (!offered) continue;
    if (offered->matches > 0) return {};
    if (unmatched.empty()) unmatched = offered->unmatched;
  }
  return abort(AbortReason::no_match,
               "no target matches on any rank" + (unmatched.empty() ? "" : ": " + unmatched));
}

Verdict Coordinator::commit() const {
  Verdict verdict;
  verdict.revision = open_->revision;
  verdict.plan = open_->proposal.plan;
  Step effective = last_.commit ? last_.commit->effective + 1 : Step{};
  if (inherited_effective_) effective = std::max(effective, *inherited_effective_ + 1);
  if (const auto last = members_.last_departed_step();
      last && !mutant_active(Mutant::effective_below_dropped))
    effective = std::max(effective, *last + 1);
  std::optional<Step> fence;
  for (const RankMember& member : members_) {
    if (member.phase == Membership::Phase::member)
      effective = std::max(effective, member.hello.start_iteration + 1);
    if (member.ready) fence = binding(fence.value_or(member.ready->fence), member.ready->fence);
  }
  verdict.effective = std::max(effective, fence.value_or(effective));
  return verdict;
}

void Coordinator::decide(CoordinatorActions& actions, WallTime now) {
  if (auto objected = objection()) return conclude(std::move(*objected), actions, now);
  std::vector<int> absent = missing();
  if (mutant_active(Mutant::silent_counts_as_gone) && clock_ - open_->opened >= kLongestPrepareTimeout)
    absent.clear();
  if (absent.empty()) {
    if (open_->stage == Stage::promising) return conclude(commit(), actions, now);
    if (auto nothing = no_match()) return conclude(std::move(*nothing), actions, now);
    return promise_stage(actions);
  }
  if (open_->stage == Stage::offering) {
    const auto silent = [&](int rank) { return !members_.heard(members_.of(rank), clock_); };
    absent.erase(std::remove_if(absent.begin(), absent.end(), [&](int rank) { return !silent(rank); }),
                 absent.end());
    if (absent.empty()) return;
  } else if (clock_ - open_->opened < prepare_timeout()) {
    return;
  } else if (!open_->proposal.plan->on) {
    return conclude(commit(), actions, now);  // Silent ranks go off when their lease runs out.
  }
  open_->proposal.missed = absent;
  conclude(abort(AbortReason::timed_out, names_of_ranks(absent) + " did not answer"), actions, now);
}

void Coordinator::conclude(Verdict verdict, CoordinatorActions& actions, WallTime now) {
  const bool off = verdict.commit() && !verdict.plan->on;
  const bool logged = mutant_active(Mutant::sent_before_logged) || note(verdict, actions);
  if (!logged && verdict.commit() && !off)
    verdict = abort(AbortReason::not_logged, "the verdict could not be written to the decision log");
  close_open(verdict, actions, now);
}

void Coordinator::close_open(const Verdict& verdict, CoordinatorActions& actions, WallTime now) {
  last_.closed = std::max(last_.closed, verdict.revision);
  if (HistoryEntry* entry = journal_.find(open_->proposal.entry)) {
    enter_verdict(*entry, verdict);
    journal_.touch(open_->proposal.entry);
  }
  if (verdict.commit()) {
    decide_ms_ = 0.5 * decide_ms_ + 0.5 * static_cast<double>((clock_ - open_->opened).count());
    take_commit(verdict);
  }
  send_known_decisions(actions);
  if (!verdict.commit()) retry(verdict, actions, now);
  open_.reset();
}

void Coordinator::take_commit(const Verdict& commit) {
  last_.commit = commit;
  committed_.add(commit);
  budget_.on_commit(*commit.plan);
  members_.plan_was_effective();
  ranks_to_start_.clear();
}

void Coordinator::send_known_decisions(CoordinatorActions& actions) const {
  Outgoing decided{{}, Decided{last_}};
  for (int rank = 0; rank < members_.size(); ++rank) {
    const RankMember& member = members_.of(rank);
    const bool asked = !mutant_active(Mutant::verdict_without_plan) || member.asked;
    if (member.takes_part() && asked) decided.to.emplace_back(rank, member.incarnation);
  }
  if (!decided.to.empty()) actions.send.push_back(std::move(decided));
}

void Coordinator::retry(const Verdict& verdict, CoordinatorActions& actions, WallTime now) {
  const std::string what =
      "revision " + std::to_string(verdict.revision.value) + " aborted: " + verdict.reason;
  const bool capture = open_->proposal.plan->returns_to != nullptr;
  // A capture shows the steps right after its alert. A late capture would show other steps.
  const bool too_late = capture && (verdict.abort_reason == AbortReason::busy ||
                                    open_->proposal.attempts + 1 >= kMostCaptureAttempts);
  if (is_final(verdict.abort_reason) || too_late) {
    if (verdict.abort_reason == AbortReason::withdrawn) return;
    if (!capture) refusal_ = verdict.reason;  // The plan before it goes on.
    if (open_->proposal.plan->cause == Cause::resync) ranks_to_start_.clear();
    actions.warnings.push_back(what);
    return;
  }
  Proposal again = open_->proposal;
  again.not_before = clock_ + Ticks{1000} * std::min(60, 1 << std::min(again.attempts, 6));
  again.attempts += 1;
  again.last_abort = verdict.reason;
  HistoryEntry* entry = journal_.find(again.entry);
  if (waiting_ && !is_of_user(*waiting_->plan) && is_of_user(*again.plan))
    forget_waiting("superseded", "a change by the user is waiting");
  if (waiting_) {
    if (entry != nullptr) entry->reason += "; superseded by a newer change (" + waiting_->plan->by + ")";
    return;
  }
  if (again.attempts == 1) actions.warnings.push_back(what + "; it will be retried");
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

void Coordinator::check_ended(CoordinatorActions& actions) {
  const auto end = committed_.check_ended(members_, clock_);
  if (!end) return;
  if (!end->silent.empty()) {
    actions.warnings.push_back(names_of_ranks(end->silent) + " did not report the end of revision " +
                               std::to_string(end->revision.value));
  }
  if (HistoryEntry* entry = journal_.find(end->revision)) {
    entry->finished_step = end->last.value;
    journal_.touch(end->revision);
  }
  if (!end->file) return write_back_ended(end->revision);
  actions.write_back = WriteBack{end->revision, *end->file};
}

CoordinatorActions Coordinator::dry_run(std::string id, PlanPtr plan) {
  dry_runs_.ask(std::move(id), std::move(plan), clock_);
  CoordinatorActions actions;
  advance_dry_runs(actions);
  return actions;
}

// Sends the questions of dry runs that are due, and takes the results of ended dry runs.
void Coordinator::advance_dry_runs(CoordinatorActions& actions) {
  for (auto& [ranks, question] : dry_runs_.due(members_, clock_)) {
    Outgoing asked{{}, std::move(question)};
    for (const int rank : ranks) asked.to.emplace_back(rank, members_.of(rank).incarnation);
    actions.send.push_back(std::move(asked));
  }
  auto ended = dry_runs_.take_ended(members_, clock_);
  std::move(ended.begin(), ended.end(), std::back_inserter(actions.dry_runs));
}

void Coordinator::write_back_ended(Revision revision) {
  committed_.write_back_ended(revision);
  if (end_logged_ == revision) return;  // Failed write-backs are retried repeatedly.
  if (log_.append(WrittenBackEntry{revision})) end_logged_ = revision;
}

bool Coordinator::may_exit() const {
  return !committed_.write_back_outstanding() &&
         std::none_of(members_.begin(), members_.end(),
                      [](const RankMember& each) { return each.takes_part(); });
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
  return std::all_of(members_.begin(), members_.end(), [&](const RankMember& each) {
    return each.phase != Membership::Phase::absent && each.has_applied(revision);
  });
}

// The expected time from Prepare to commit, in steps of the fastest rank.
std::int64_t Coordinator::lookahead_for(const Plan& plan) const {
  if (plan.lookahead) return *plan.lookahead;
  double shortest = 0;
  for (const RankMember& member : members_) {
    const double ms = member.progress.step_ms;
    if (ms > 0 && (shortest == 0 || ms < shortest)) shortest = ms;
  }
  if (shortest == 0 || decide_ms_ <= shortest / 5) return 1;
  return 1 + std::llround(std::ceil(std::min(decide_ms_ / shortest, kMostLookahead)));
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// Coordinator: the beginning or restoring of an epoch, and gradmon's own proposals.
#include <algorithm>
#include <utility>

#include "control/agree/coordinator.h"

namespace gradmon {
namespace {

constexpr Ticks kAbsentTimeout{15'000};

HistoryEntry history_entry(const OfferedEntry& offered) {
  HistoryEntry entry = history_entry(*offered.plan, offered.at);
  entry.revision = offered.revision;
  return entry;
}

}  // namespace

CoordinatorActions Coordinator::restore(const std::vector<LogEntry>& entries, WallTime now) {
  restored_ = true;
  journal_.begin_at(static_cast<Journal::Key>(std::max<WallTime>(now, 1)));  // above all earlier keys
  std::optional<OfferedEntry> open;
  for (const LogEntry& entry : entries) {
    if (const auto* joined = std::get_if<JoinedEntry>(&entry)) {
      members_.restore(*joined, clock_);
      note_earlier_epoch(joined->hello);
    }
    if (const auto* gone = std::get_if<DepartureEntry>(&entry)) members_.restore(*gone);
    if (const auto* ended = std::get_if<WrittenBackEntry>(&entry)) restore_end(ended->revision);
    if (const auto* applied = std::get_if<AppliedEntry>(&entry)) committed_.announce(applied->revision);
    if (const auto* asked = std::get_if<OfferedEntry>(&entry)) {
      open = *asked;
      next_ = std::max(next_, {asked->revision.value + 1});
    }
    if (const auto* verdict = std::get_if<Verdict>(&entry)) {
      last_.closed = std::max(last_.closed, verdict->revision);
      next_ = std::max(next_, {verdict->revision.value + 1});
      if (verdict->commit()) take_commit(*verdict);
      if (!open || open->revision != verdict->revision) continue;
      HistoryEntry decided = history_entry(*open);
      enter_verdict(decided, *verdict);
      journal_.restore(std::move(decided));
      open.reset();
    }
  }
  members_.begin_incarnation();
  CoordinatorActions actions;
  if (!open || open->revision <= last_.closed) return actions;
  Open aborted;
  aborted.revision = open->revision;
  aborted.proposal.plan = open->plan;
  aborted.proposal.since = now;
  aborted.proposal.entry = journal_.add(history_entry(*open));
  open_ = std::move(aborted);
  conclude(abort(AbortReason::restarted, "the hub restarted"), actions, now);
  if (waiting_) {
    waiting_->not_before = clock_;
    waiting_->restored = true;
  }
  return actions;
}

void Coordinator::restore_end(Revision revision) {
  committed_.write_back_ended(revision);
  end_logged_ = revision;
  if (HistoryEntry* entry = journal_.find(revision)) entry->finished_step = entry->steps.last().value;
}

CoordinatorActions Coordinator::begin(PlanPtr from_file, WallTime now) {
  begun_ = true;
  from_file_ = from_file;
  CoordinatorActions actions;
  if (restored_) {
    const PlanPtr newest = newest_plan();
    const bool known = from_file && newest && from_file->file && config_save(*newest) &&
                       *config_save(*newest) == *from_file->file;
    const bool asks = from_file && !known && (from_file->on || !newest_is_off());
    if (asks) actions += propose(std::move(from_file), now);
  } else if (from_file && from_file->on) {
    starts_on_ = true;
    actions += propose(std::move(from_file), now);
  }
  for (const Envelope& envelope : std::exchange(early_, {})) actions += on_message(envelope, now);
  return actions;
}

void Coordinator::note_earlier_epoch(const Hello& hello) {
  if (hello.held_epoch.empty() || hello.held_epoch == job_.epoch) return;
  log_lost_ = true;
  members_.plan_was_effective();  // possibly; its log is lost
}

void Coordinator::inherit(const Hello& hello, CoordinatorActions& actions, WallTime now) {
  const Verdict& held = *hello.held;
  if (hello.held_epoch == job_.epoch) {
    if (held.revision > last_.closed) adopt_unlogged_off(held, actions);
    return catch_up(held.revision, actions, now);
  }
  if (!inherited_effective_ || *inherited_effective_ < held.effective) inherited_effective_ = held.effective;
  if (last_.commit || (inherited_ && held.revision <= inherited_->revision)) return;
  inherited_ = held;
  inherited_proposed_ = false;
  if (next_ <= held.revision) next_ = {held.revision.value + 1};
}

// A rank knows the verdicts up to `closed`. The log may lack some, if the previous coordinator could not
// append them. Their revision numbers are not given again.
void Coordinator::catch_up(Revision closed, CoordinatorActions& actions, WallTime now) {
  if (open_ && open_->revision <= closed)
    conclude(abort(AbortReason::restarted, "its revision number was already used before the hub restarted"),
             actions, now);
  if (next_ <= closed) next_ = {closed.value + 1};
  if (last_.closed < closed) last_.closed = closed;
}

// Takes over Off from a rank. Off is the only verdict that is sent even if the log could not take it.
void Coordinator::adopt_unlogged_off(const Verdict& off, CoordinatorActions& actions) {
  if (off.plan->on) return;
  last_.closed = off.revision;
  take_commit(off);
  note(off, actions);
  if (waiting_ && waiting_->restored)
    forget_waiting("superseded", "superseded by a newer change (" + off.plan->by + ")");
  send_known_decisions(actions);
}

// Proposes the newest plan that a rank still holds from an epoch whose log is lost, with the steps that it
// had left. Skips it if the file has been saved or a change has been requested since.
void Coordinator::propose_inherited(CoordinatorActions& actions, WallTime now) {
  if (!inherited_ || inherited_proposed_ || open_ || last_.commit || !why_not_ready().empty()) return;
  inherited_proposed_ = true;
  const Plan& held = *inherited_->plan;
  const bool asked_since = waiting_ && waiting_->plan != from_file_ && waiting_->plan->cause != Cause::resync;
  if (asked_since) return;
  if (from_file_ && from_file_->file && config_save(held) && *from_file_->file != *config_save(held)) {
    if (!waiting_) actions += propose(from_file_, now);
    return;
  }
  forget_waiting("superseded", "the ranks still hold revision " + std::to_string(inherited_->revision.value));
  auto plan = std::make_shared<Plan>(held);
  if (held.on) plan->continues = schedule_of(held, inherited_->effective);
  plan->cause = Cause::resync;
  plan->by = "gradmon (the ranks still hold revision " + std::to_string(inherited_->revision.value) + ")";
  plan->request_id.clear();
  actions += propose(std::move(plan), now);
}

// The reason why a plan that is on cannot be opened, or "". If the log is lost, a rank's new process may have
// replaced an unknown process that still holds a lease.
std::string Coordinator::why_not_ready() const {
  std::string why = members_.why_not_ready(clock_);
  if (!why.empty() || !log_lost_ || clock_ >= kAbsentTimeout) return why;
  for (int rank = 0; rank < members_.size(); ++rank) {
    const RankMember& member = members_.of(rank);
    if (member.takes_part() && member.hello.held_epoch.empty())
      return "waiting until the lease of rank " + std::to_string(rank) + "'s previous process has expired";
  }
  return why;
}

// Stops waiting for ranks that died before a new epoch began (the log was lost): they will never be heard.
void Coordinator::stop_waiting_for_absent() {
  if (!log_lost_ || clock_ < kAbsentTimeout) return;
  for (int rank = 0; rank < members_.size(); ++rank) members_.stop_waiting_for(Rank{rank});
}

// A copy of the newest committed plan. Collects only the steps still missing when that plan is replaced.
std::shared_ptr<Plan> Coordinator::copy_with_remaining_steps(Cause cause, std::string by) const {
  auto plan = std::make_shared<Plan>(*last_.commit->plan);
  plan->continues = committed_.newest()->schedule;
  plan->cause = cause;
  plan->by = std::move(by);
  plan->request_id.clear();
  // The plan that follows a capture has collected nothing since the capture began.
  if (plan->returns_to && plan->returns_to->continues) {
    auto next = std::make_shared<Plan>(*plan->returns_to);
    next->continues = left_at(*next->continues, last_.commit->effective);
    plan->returns_to = std::move(next);
  }
  return plan;
}

bool Coordinator::may_capture() const {
  if (waiting_ || open_ || !last_.commit || committed_.ended()) return false;
  return last_.commit->plan->on && !last_.commit->plan->returns_to &&
         committed_.newest()->schedule.times() > 0;
}

CoordinatorActions Coordinator::capture(std::shared_ptr<Plan> richer, WallTime now) {
  richer->on = true;
  richer->cause = Cause::alert;
  richer->file.reset();
  richer->returns_to = copy_with_remaining_steps(Cause::alert, "the end of the capture");
  return propose(std::move(richer), now);
}

// A return that is refused or withdrawn is not proposed again: collecting stays off, and the status says why.
void Coordinator::return_from_capture(CoordinatorActions& actions, WallTime now) {
  if (waiting_ || open_ || !last_.commit || !committed_.ended()) return;
  const Verdict& capture = *last_.commit;
  if (!capture.plan->returns_to || returned_ == capture.revision) return;
  returned_ = capture.revision;
  auto plan = std::make_shared<Plan>(*capture.plan->returns_to);
  if (plan->continues) plan->continues = left_at(*plan->continues, capture.effective);
  actions.log.push_back("the capture of revision " + std::to_string(capture.revision.value) +
                        " is complete: returning to the plan before it");
  actions += propose(std::move(plan), now);
}

void Coordinator::resync(CoordinatorActions& actions, WallTime now) {
  if (ranks_to_start_.empty() || waiting_ || open_) return;  // an open change has the same effect
  const bool on = last_.commit && last_.commit->plan->on && !committed_.ended();
  if (!on) return ranks_to_start_.clear();
  const std::vector<int> ranks(ranks_to_start_.begin(), ranks_to_start_.end());
  auto plan = copy_with_remaining_steps(
      Cause::resync, names_of_ranks(ranks) + (ranks.size() == 1 ? " has" : " have") + " rejoined");
  actions.log.push_back(plan->by + ": proposing the plan again for all ranks");
  actions += propose(std::move(plan), now);
}

void Coordinator::keep_budget(CoordinatorActions& actions, WallTime now) {
  if (waiting_ || open_ || !last_.commit || committed_.ended()) return;
  const CommittedPlan& newest = *committed_.newest();
  const Plan& in_force = *newest.verdict.plan;
  if (!in_force.on || !in_force.max_overhead) return;
  std::vector<OverheadBudget::RankCost> costs;
  for (int rank = 0; rank < members_.size(); ++rank) {
    const RankMember& member = members_.of(rank);
    if (!member.takes_part()) continue;
    if (member.progress.step >= newest.schedule.end()) return;
    costs.push_back({rank, member.progress.overhead});
  }
  const auto change = budget_.change_due(in_force, newest.verdict.revision, costs);
  if (!change) return;
  auto plan = copy_with_remaining_steps(Cause::budget, "the budget (" + change->why + ")");
  plan->on = change->on;
  plan->step_interval = change->step_interval;
  actions.log.push_back("max_overhead: " + change->why);
  actions += propose(std::move(plan), now);
}

bool Coordinator::evict(Rank rank, const std::string& by, CoordinatorActions& actions) {
  if (!members_.evict(rank, by)) return false;
  note(DepartureEntry{rank, DepartureEntry::How::evicted, members_.of(rank.value).progress.step, by},
       actions);
  actions.warnings.push_back("rank " + std::to_string(rank.value) + " was evicted by " + by +
                             " and will be dropped in 15 s");
  return true;
}

}  // namespace gradmon

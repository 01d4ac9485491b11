// SPDX-License-Identifier: Apache-2.0
// The changes that a coordinator makes itself (OwnChanges).
#include <string>
#include <utility>

#include "control/agree/coordinator.h"
#include "control/text/alert_words.h"

namespace gradmon {

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

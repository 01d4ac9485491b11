// SPDX-License-Identifier: Apache-2.0
#include "control/agree/member.h"

#include <algorithm>

#include "control/agree/mutant.h"
#include "control/text/utf8.h"

namespace gradmon {
namespace {

constexpr Ticks kHelloEvery{250};
constexpr Ticks kLeftEvery{100};
constexpr Ticks kBusyWithin{600'000};
constexpr Ticks kBusyAfter{2'000};
constexpr std::size_t kMostReason = 1000;  // bytes of an objection
constexpr std::size_t kMostSent = 256;     // messages that wait for an acknowledgement

std::string shortened(const std::string& reason) { return std::string(utf8_prefix(reason, kMostReason)); }

}  // namespace

Member::Member(Identity identity, StepGate& gate, CanCarryOut can_carry_out, ListTargets list_targets)
    : identity_(std::move(identity)),
      gate_(gate),
      can_carry_out_(std::move(can_carry_out)),
      list_targets_(std::move(list_targets)) {
  if (!identity_.dynamic) return;
  start_hold_ = identity_.hello.start_iteration + 1;
  gate_.require_lease();
}

MemberActions Member::start(Ticks now) {
  now_ = now;
  started_ = true;
  // Agent::start() has just held the start, also if give_up() came earlier.
  if (identity_.dynamic && !start_hold_) gate_.settle({}, standing_fence());
  send_hello();
  return take_actions();
}

MemberActions Member::connected(Ticks now) {
  now_ = now;
  connected_ = true;
  joined_ = false;
  if (mutant_active(Mutant::forgets_promise_on_return)) {
    open_.reset();
    gate_.release();
    gate_.rejoin();
  }
  send_hello();
  return take_actions();
}

void Member::disconnected() { connected_ = joined_ = false; }

void Member::give_up(std::string reason) {
  refused_ = std::move(reason);
  drop_start_hold();
}

void Member::drop_start_hold() {
  if (!start_hold_) return;
  start_hold_.reset();
  gate_.settle({}, standing_fence());
}

Step Member::standing_fence() const {
  if (start_hold_) return *start_hold_;
  return open_ ? open_->fence : kNever;
}

std::uint64_t Member::record_sent(bool lapsed) {
  sent_.push_back({++numbers_, now_, lapsed});
  if (sent_.size() > kMostSent) sent_.pop_front();
  return numbers_;
}

void Member::send_hello() {
  if (!started_ || !connected_ || joined_ || leaving_ || replaced_) return;
  last_hello_ = now_;
  Hello hello = identity_.hello;
  hello.step = gate_.current();
  hello.lapsed = epoch_.empty() || gate_.lapsed() || (!held_ && !open_);
  hello.number = record_sent(hello.lapsed);
  hello.held_epoch = epoch_;
  hello.epoch_order = epoch_order_;
  if (!hello.lapsed) hello.held = held_;
  out_.send.emplace_back(std::move(hello));
}

Envelope Member::to_coordinator(Message message) const {
  if (std::holds_alternative<Hello>(message)) return {"", identity_.rank, 0, std::move(message)};
  return {epoch_, identity_.rank, incarnation_, std::move(message)};
}

MemberActions Member::on_envelope(const Envelope& envelope, Ticks now) {
  const bool for_this_life = envelope.epoch == epoch_ && envelope.incarnation == incarnation_;
  if (!for_this_life && !std::holds_alternative<Welcome>(envelope.message)) return {};
  return on_message(envelope.message, envelope.epoch, now);
}

MemberActions Member::on_message(const Message& message, const std::string& epoch, Ticks now) {
  now_ = now;
  check_lapsed();
  if (const auto* welcome = std::get_if<Welcome>(&message)) {
    on_welcome(*welcome, epoch);
  } else if (std::holds_alternative<LeftAck>(message)) {
    left_acknowledged_ = true;
  } else if (std::holds_alternative<Replaced>(message)) {
    withdraw();
  } else if (!joined_ || replaced_) {
    return take_actions();
  } else if (const auto* heard = std::get_if<ProgressAck>(&message)) {
    acknowledged(heard->number);
  } else if (std::holds_alternative<RejoinRequest>(message)) {
    joined_ = false;
    send_hello();
  } else if (const auto* question = std::get_if<DryRun>(&message)) {
    on_dry_run(*question);
  } else if (const auto* offer = std::get_if<Offer>(&message)) {
    on_offer(*offer);
  } else if (const auto* prepare = std::get_if<Prepare>(&message)) {
    on_prepare(*prepare);
  } else if (const auto* decided = std::get_if<Decided>(&message)) {
    apply_decisions(decided->last);
    check_lapsed();
  }
  return take_actions();
}

// After a lapse the promise and the plan in force are gone. From then on only the answer to a Hello that
// reports the lapse lets the rank join again.
void Member::check_lapsed() {
  if (!identity_.dynamic || replaced_) return;
  gate_.check_lease(now_);
  if (!gate_.lapsed() || lapse_reported_) return;
  lapse_reported_ = true;
  out_.warnings.push_back(
      start_hold_ ? "off: no answer to Hello; training continues without collecting"
      : open_ ? "off: timed out waiting for the verdict on revision " + std::to_string(open_->revision.value)
              : "off: the lease expired (no acknowledgement for " + std::to_string(kLease.count() / 1000) +
                    " s), or a verdict was missed");
  open_.reset();
  start_hold_.reset();
  pending_offer_.reset();
  held_.reset();
  entered_.clear();
  newest_applied_ = {};
  joined_ = false;
  send_hello();
}

void Member::acknowledged(std::uint64_t number) {
  const auto found =
      std::find_if(sent_.begin(), sent_.end(), [&](const Sent& each) { return each.number == number; });
  if (found == sent_.end()) return;
  const Ticks sent = mutant_active(Mutant::lease_from_arrival) ? now_ : found->at;
  sent_.erase(sent_.begin(), found + 1);
  if (!gate_.needs_lease()) lease_epoch_ = epoch_;
  if (lease_epoch_ != epoch_) return;
  if (gate_.lapsed()) return;
  lease_until_ = std::max(lease_until_, sent + kLease);
  if (identity_.dynamic) gate_.renew_lease(lease_until_);
}

// Another process has this rank number. From the next boundary on this process collects nothing.
void Member::withdraw() {
  if (!joined_ || std::exchange(replaced_, true)) return;
  left_acknowledged_ = true;
  start_hold_.reset();
  open_.reset();
  gate_.withdraw();
  out_.warnings.emplace_back("off: another process has joined as this rank");
}

void Member::on_dry_run(const DryRun& question) {
  const auto matches = question.plan && question.plan->on ? can_carry_out_(*question.plan) : 0;
  DryRunAnswer answer{question.id, matches.value_or(0), matches ? "" : shortened(matches.error()), {}};
  if (list_targets_ && matches) answer.targets = list_targets_(question.plan.get());
  if (identity_.rank.value != 0) answer.targets = only_silent_or_unmatched(std::move(answer.targets));
  answer.targets = within(std::move(answer.targets), question.room);
  out_.send.emplace_back(std::move(answer));
}

void Member::on_welcome(const Welcome& welcome, const std::string& epoch) {
  if (replaced_ || welcome.process_id != identity_.hello.process_id) return;
  const auto hello = std::find_if(sent_.begin(), sent_.end(),
                                  [&](const Sent& each) { return each.number == welcome.number; });
  if (hello == sent_.end()) return;
  if (joined_) {
    // The answer to a repeated Hello: the incarnation may be a new one.
    if (!welcome.refused.empty() || epoch != epoch_ || welcome.incarnation < incarnation_) return;
    incarnation_ = welcome.incarnation;
    acknowledged(welcome.number);
    return;
  }
  if (!welcome.refused.empty()) {
    if (refused_ != welcome.refused) out_.warnings.push_back("off: " + welcome.refused);
    refused_ = welcome.refused;
    if (!welcome.retry) drop_start_hold();
    return;
  }
  const bool another_epoch = !epoch_.empty() && epoch != epoch_;
  if (another_epoch && welcome.epoch_order < epoch_order_) {
    const std::string why = "the hub that answered belongs to an older epoch than this rank";
    if (refused_ != why) out_.warnings.push_back(why);
    refused_ = why;
    return;
  }
  const bool answers_lapse = hello->lapsed;
  // The rank has lapsed since it sent this Hello. The next Hello reports the lapse.
  if (gate_.lapsed() && !answers_lapse) return;
  if (another_epoch && open_ && !answers_lapse) {
    gate_.lapse();
    return check_lapsed();
  }
  refused_.clear();
  joined_ = true;
  if (another_epoch) {
    entered_.clear();
    newest_applied_ = {};
    finished_ = {};
  }
  epoch_ = epoch;
  epoch_order_ = std::max(epoch_order_, welcome.epoch_order);
  incarnation_ = welcome.incarnation;
  if (answers_lapse) {
    gate_.rejoin();
    lapse_reported_ = false;
    // Earlier commits do not apply to this process. A resync brings it in.
    last_ = welcome.last;
    commit_epoch_ = epoch;
  } else {
    if (another_epoch) last_ = {};
    apply_decisions(welcome.last);
  }
  acknowledged(welcome.number);
  if (!welcome.epoch_starts_on) drop_start_hold();
}

std::string Member::unmatched_by(const Plan& plan) const {
  std::string text;
  const TargetList targets = list_targets_ ? list_targets_(&plan) : TargetList{};
  for (const UnmatchedTarget& one : targets.unmatched) {
    if (text.size() < kMostReason) text += (text.empty() ? "" : "; ") + describe(one);
  }
  return shortened(text);
}

std::optional<Message> Member::answer_to(const Offer& offer) const {
  const Plan& plan = *offer.plan;
  const auto matches = plan.on ? can_carry_out_(plan) : 0;
  if (!matches) return Reject{offer.revision, shortened(matches.error())};
  const bool in_first_step = gate_.current() <= identity_.hello.start_iteration;
  if (plan.on && *matches == 0 && in_first_step) return {};  // The program may still call watch().
  return Offered{offer.revision, plan.config_sha256, *matches,
                 plan.on && *matches == 0 ? unmatched_by(plan) : ""};
}

std::optional<Busy> Member::busy_for(const Offer& offer) const {
  const Ticks waited = gate_.waited_in(kBusyWithin, now_);
  if (!offer.plan->on || waited <= kBusyAfter) return {};
  return Busy{offer.revision, "training has waited " + std::to_string(waited.count()) + " ms for verdicts"};
}

void Member::on_offer(const Offer& offer) {
  if (offer.revision <= last_.closed) return;
  if (!pending_offer_ || pending_offer_->offer.revision != offer.revision)
    pending_offer_ = PendingOffer{offer, {}};
  if (!pending_offer_->answer) pending_offer_->answer = answer_to(offer);
  if (!pending_offer_->answer) return;
  const auto too_busy = busy_for(offer);  // Answered before Prepare: then the others would wait.
  out_.send.push_back(too_busy ? Message{*too_busy} : *pending_offer_->answer);
}

void Member::on_prepare(const Prepare& prepare) {
  if (!open_ || !mutant_active(Mutant::second_promise)) apply_decisions(prepare.last);
  if (prepare.revision <= last_.closed || gate_.lapsed()) return;
  const bool repeated = open_ && open_->revision == prepare.revision;
  if (open_ && !mutant_active(repeated ? Mutant::answers_anew : Mutant::second_promise)) {
    if (repeated) out_.send.push_back(open_->answer);
    return;
  }
  const bool known = pending_offer_ && pending_offer_->offer.revision == prepare.revision &&
                     pending_offer_->answer &&
                     pending_offer_->offer.plan->config_sha256 == prepare.config_sha256;
  if (!known) return;  // The coordinator sends the offer again.
  if (std::holds_alternative<Reject>(*pending_offer_->answer)) {
    out_.send.push_back(*pending_offer_->answer);
    return;
  }
  if (auto too_busy = busy_for(pending_offer_->offer)) {
    out_.send.emplace_back(std::move(*too_busy));
    return;
  }
  // The implied promise of the start becomes this promise, with the same fence.
  const Ticks max_wait = pending_offer_->offer.plan->max_wait;
  const Step fence = start_hold_ ? *start_hold_ : gate_.promise(prepare.lookahead, max_wait);
  if (fence == kNever) return;
  start_hold_.reset();
  if (mutant_active(Mutant::ready_without_fence)) gate_.release();
  open_ = OpenPromise{prepare.revision, Ready{prepare.revision, prepare.config_sha256, fence}, fence};
  out_.send.push_back(open_->answer);
}

// If the effective step has already begun, the commit cannot take effect there. Off then takes effect at the
// next possible step; for any other plan the rank lapses.
void Member::apply_commit(const Verdict& commit) {
  commit_epoch_ = epoch_;
  held_ = commit;
  Commitment commitment{commit.revision, commit.plan, commit.effective};
  entered_.push_back({commit.revision, commit.effective});
  if (gate_.settle(commitment, standing_fence())) return;
  if (commit.plan->on) {
    out_.warnings.push_back("missed revision " + std::to_string(commit.revision.value) +
                            ", effective at step " + std::to_string(commit.effective.value));
    gate_.lapse();
    return;
  }
  do {
    commitment.effective = gate_.current() + 1;
  } while (!gate_.settle(commitment, standing_fence()));
}

void Member::apply_decisions(const KnownDecisions& last) {
  if (last.closed <= last_.closed) return;
  const bool new_commit = last.commit && (!last_.commit || last.commit->revision > last_.commit->revision);
  const bool with_plan = !mutant_active(Mutant::verdict_without_plan) ||
                         (new_commit && open_ && open_->revision == last.commit->revision);
  // A later commit came first: this rank will not receive the verdict on the revision that it promised.
  const bool passed_over = open_ && new_commit && open_->revision < last.commit->revision &&
                           open_->revision <= last.closed && !mutant_active(Mutant::passes_over);
  if (open_ && open_->revision <= last.closed) open_.reset();
  if (pending_offer_ && pending_offer_->offer.revision <= last.closed) pending_offer_.reset();
  start_hold_.reset();
  last_ = last;
  if (gate_.lapsed()) return;
  if (passed_over && last.commit->plan->on) {
    out_.warnings.push_back("missed the verdict on a revision before " +
                            std::to_string(last.commit->revision.value) + "; this rank stops collecting");
    gate_.lapse();
  } else if (new_commit && with_plan) {
    Verdict commit = *last.commit;
    // Until then the revision that was promised may be in force on other ranks: off at once.
    if (passed_over) commit.effective = Step{};
    apply_commit(commit);
  } else {
    gate_.settle({}, standing_fence());
  }
}

MemberActions Member::tick(Ticks now) {
  now_ = now;
  if (replaced_) return {};
  check_lapsed();
  // A hub of another epoch does not know this rank: it answers only a Hello.
  if (joined_ && connected_ && !sent_.empty() && now - sent_.front().at > kLease) joined_ = false;
  if (!joined_ && now - last_hello_ >= kHelloEvery) send_hello();
  if (leaving_ && !left_acknowledged_ && now - last_left_ >= kLeftEvery) {
    last_left_ = now;
    out_.send.emplace_back(Left{*leaving_});
  }
  return take_actions();
}

// Skips revisions of another epoch: their numbers mean nothing in this one.
MemberActions Member::applied() {
  if (replaced_) return {};
  for (const auto& [revision, step] : gate_.take_applied()) {
    if (held_ && held_->revision == revision) lease_epoch_ = commit_epoch_;
    const auto is_it = [&, revision = revision, step = step](const Applied& entered) {
      return entered.revision == revision && entered.step <= step;
    };
    const auto entered = std::find_if(entered_.begin(), entered_.end(), is_it);
    if (entered == entered_.end()) continue;
    entered_.erase(entered_.begin(), entered + 1);
    newest_applied_ = {revision, step};
    out_.send.emplace_back(newest_applied_);
  }
  return take_actions();
}

MemberActions Member::finished(Revision revision) {
  MemberActions actions = applied();
  if (revision > newest_applied_.revision) return actions;
  finished_ = revision;
  actions.send.emplace_back(Finished{revision});
  return actions;
}

MemberActions Member::leave(Step last) {
  leaving_ = last;
  out_.send.emplace_back(Left{last});
  return take_actions();
}

Progress Member::progress() const {
  Progress progress;
  progress.step = gate_.current();
  progress.waiting = gate_.current() >= standing_fence();
  const auto in_force = gate_.in_force();
  progress.collecting = in_force && in_force->plan->on &&
                        progress.step < schedule_of(*in_force->plan, in_force->effective).end();
  progress.closed = last_.closed;
  progress.applied = newest_applied_.revision;
  progress.applied_step = newest_applied_.step;
  progress.finished = finished_;
  return progress;
}

Message Member::report(Progress progress, Ticks now) {
  now_ = now;
  progress.number = record_sent(false);
  return progress;
}

}  // namespace gradmon

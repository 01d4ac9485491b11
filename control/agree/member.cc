// SPDX-License-Identifier: Apache-2.0
#include "control/agree/member.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "control/agree/mutant.h"

namespace gradmon {
namespace {

constexpr Ticks kHelloEvery{250};
constexpr Ticks kAskEvery{250};
constexpr Ticks kLeftEvery{100};
constexpr Ticks kStartTimeout{30'000};
constexpr Ticks kLongestTick{1000};
constexpr std::size_t kMostReason = 1000;  // bytes of an objection

}  // namespace

MemberActions& MemberActions::operator+=(MemberActions other) {
  std::move(other.send.begin(), other.send.end(), std::back_inserter(send));
  std::move(other.warnings.begin(), other.warnings.end(), std::back_inserter(warnings));
  if (other.write) write = std::move(other.write);
  if (other.prove) prove = std::move(other.prove);
  if (other.prove_in_store) prove_in_store = std::move(other.prove_in_store);
  return *this;
}

Member::Member(Identity identity, StepGate& gate, CanCarryOut can_carry_out, ListTargets list_targets)
    : identity_(std::move(identity)),
      gate_(gate),
      can_carry_out_(std::move(can_carry_out)),
      list_targets_(std::move(list_targets)) {
  if (identity_.holds_start) start_hold_ = StartHold{identity_.hello.start_iteration + 1, {}};
}

MemberActions Member::say_hello() {
  last_hello_ = clock_;
  MemberActions actions;
  if (!joined_) actions.send.emplace_back(identity_.hello);
  return actions;
}

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
  if (start_hold_) return start_hold_->fence;
  return open_ && open_->fence && !open_->gave_up ? *open_->fence : kNever;
}

MemberActions Member::on_message(const Message& message) {
  if (const auto* welcome = std::get_if<Welcome>(&message)) return on_welcome(*welcome);
  if (std::holds_alternative<LeftHeard>(message) || std::holds_alternative<Closing>(message)) {
    left_heard_ = true;
    return {};
  }
  if (std::holds_alternative<Replaced>(message)) return withdraw();
  if (!joined_ || replaced_) return {};
  if (const auto* ping = std::get_if<Ping>(&message)) return {{Pong{ping->number}}, {}, {}, {}, {}};
  if (const auto* probe = std::get_if<Probe>(&message)) return on_probe(*probe);
  if (rejoining_) return {};
  if (const auto* prepare = std::get_if<Prepare>(&message)) return on_prepare(*prepare);
  if (const auto* decided = std::get_if<Decided>(&message)) return learn(decided->last);
  return {};
}

// From the next boundary on this process is on its own.
MemberActions Member::withdraw() {
  MemberActions actions;
  if (!joined_ || std::exchange(replaced_, true)) return actions;
  left_heard_ = true;
  start_hold_.reset();
  open_.reset();
  gate_.withdraw();
  actions.warnings.emplace_back("off: another process has taken this rank");
  return actions;
}

MemberActions Member::on_probe(const Probe& probe) const {
  const auto matches = probe.plan && probe.plan->on ? can_carry_out_(*probe.plan) : 0;
  Probed probed{probe.id, matches.value_or(0), matches ? "" : matches.error().substr(0, kMostReason), {}};
  if (list_targets_ && matches) probed.targets = list_targets_(probe.plan.get());
  // Rank 0's stays in its process, the others' is a letter.
  if (identity_.rank.value != 0) probed.targets = within(noteworthy(std::move(probed.targets)), probe.room);
  return {{std::move(probed)}, {}, {}, {}, {}};
}

MemberActions Member::on_welcome(const Welcome& welcome) {
  MemberActions actions;
  if (joined_ || welcome.process_id != identity_.process_id) return actions;
  if (!welcome.refused.empty()) {
    if (refused_ != welcome.refused) actions.warnings.push_back("off: " + welcome.refused);
    refused_ = welcome.refused;
    if (!welcome.again) drop_start_hold();
    return actions;
  }
  refused_.clear();
  joined_ = true;
  nonce_ = welcome.nonce;
  last_.home = welcome.last.home;
  sight_.begin(clock_);
  actions += look_for_homes();
  // Without a home nothing has been proposed yet, so nothing is open.
  const bool may_be_open = welcome.rejoined && last_.home != Home::undecided;
  if (may_be_open && !mutated(Mutant::forgets_on_return)) {
    rejoining_ = true;
    actions += ask_register(Revision{1});
    return actions;
  }
  actions += learn(welcome.last);
  if (!welcome.starts_on) drop_start_hold();
  return actions;
}

MemberActions Member::on_proof(const tl::expected<void, std::string>& proof, Home home) {
  MemberActions actions;
  sight_.on_proof(home, proof, clock_);
  Joined joined = sight_.joined();
  if (sight_.sees_none()) {
    if (!std::exchange(said_unseen_, true)) actions.warnings.push_back("off: " + joined.reason);
    drop_start_hold();
  }
  actions.send.emplace_back(std::move(joined));
  actions += look_for_homes();
  return actions;
}

MemberActions Member::look_for_homes() {
  MemberActions actions;
  for (const Home home : sight_.due(clock_, last_.home)) {
    (home == Home::store ? actions.prove_in_store : actions.prove) = nonce_;
  }
  return actions;
}

// Upwards without the plan: configs only travel downwards.
Decided Member::closed_word() const { return Decided{{last_.closed, {}, last_.home}}; }

std::string Member::unmatched_by(const Plan& plan) const {
  std::string text;
  const TargetList targets = list_targets_ ? list_targets_(&plan) : TargetList{};
  for (const UnmatchedTarget& one : targets.unmatched) {
    if (text.size() < kMostReason) text += (text.empty() ? "" : "; ") + sentence(one);
  }
  return text.substr(0, kMostReason);
}

MemberActions Member::on_prepare(const Prepare& prepare) {
  MemberActions actions;
  if (!open_ || !mutated(Mutant::takes_a_second)) actions += learn(prepare.last);
  if (prepare.revision <= last_.closed) {
    actions.send.push_back(closed_word());
    return actions;
  }
  const bool repeated = open_ && open_->revision == prepare.revision;
  if (open_ && !mutated(repeated ? Mutant::answers_anew : Mutant::takes_a_second)) {
    if (repeated) actions.send.push_back(open_->answer);
    return actions;
  }
  const auto matches = prepare.plan->on ? can_carry_out_(*prepare.plan) : 0;
  const bool in_first_step = gate_.current() <= identity_.hello.start_iteration;
  if (prepare.plan->on && matches && *matches == 0 && in_first_step)
    return actions;  // Models may still come.
  Open open;
  open.revision = prepare.revision;
  open.fence_timeout = prepare.plan->fence_timeout;
  open.doubt_after = prepare.doubt_after;
  open.wait_on_partition = prepare.plan->wait_on_partition;
  if (!matches) {
    open.answer = Reject{prepare.revision, matches.error().substr(0, kMostReason)};
  } else {
    // The start's implied promise becomes this one, with the same fence.
    open.fence = start_hold_ ? start_hold_->fence : gate_.promise(prepare.lookahead);
    start_hold_.reset();
    if (mutated(Mutant::ready_without_fence)) gate_.release();
    open.answer = Ready{prepare.revision,
                        prepare.proposer,
                        prepare.plan->config_sha256,
                        *matches,
                        *open.fence,
                        prepare.plan->on && *matches == 0 ? unmatched_by(*prepare.plan) : ""};
  }
  actions.send.push_back(open.answer);
  open_ = std::move(open);
  return actions;
}

MemberActions Member::learn(const LastWord& last) {
  MemberActions actions;
  if (last_.home == Home::undecided) last_.home = last.home;
  if (last.closed <= last_.closed) return actions;
  const bool new_commit = last.commit && (!last_.commit || last.commit->revision > last_.commit->revision);
  const bool with_plan = !mutated(Mutant::verdict_without_plan) ||
                         (new_commit && open_ && open_->revision == last.commit->revision);
  if (open_ && open_->revision <= last.closed) open_.reset();
  if (!rejoining_) start_hold_.reset();
  if (new_commit && with_plan) {
    const Verdict& commit = *last.commit;
    if (!gate_.settle(Commitment{commit.revision, commit.plan, commit.effective}, standing_fence())) {
      missed_ = commit.revision;
      actions.send.emplace_back(Missed{missed_});
      actions.warnings.push_back("missed revision " + std::to_string(missed_.value) + ", effective at step " +
                                 std::to_string(commit.effective.value));
    }
  } else {
    gate_.settle({}, standing_fence());
  }
  last_ = {last.closed, last.commit, last_.home};
  return actions;
}

MemberActions Member::ask_register(Revision revision) {
  Verdict abort;
  abort.revision = revision;
  abort.author = identity_.process_id;
  const std::string rank = "rank " + std::to_string(identity_.rank.value);
  if (rejoining_) {
    abort.abort_reason = AbortReason::came_back;
    abort.reason = rank + " came back";
  } else {
    abort.abort_reason = AbortReason::doubt;
    abort.reason = rank + " stood at its fence unheard";
  }
  asking_ = true;
  last_ask_ = clock_;
  if (mutated(Mutant::no_register) && !rejoining_) return on_register(abort);
  MemberActions actions;
  actions.write = std::move(abort);
  return actions;
}

MemberActions Member::on_register(const tl::expected<Verdict, std::string>& verdict) {
  MemberActions actions;
  asking_ = false;
  if (replaced_) return actions;
  if (!verdict) {
    if (verdict.error() != register_trouble_) actions.warnings.push_back("register: " + verdict.error());
    register_trouble_ = verdict.error();
    return actions;
  }
  register_trouble_.clear();
  actions += learn({verdict->revision, verdict->commit() ? *verdict : last_.commit, last_.home});
  if (rejoining_ && verdict->author != identity_.process_id) {
    actions += ask_register(Revision{last_.closed.value + 1});
    return actions;
  }
  if (rejoining_) {
    rejoining_ = false;
    drop_start_hold();
  }
  actions.send.push_back(closed_word());
  return actions;
}

MemberActions Member::tick(Ticks elapsed) {
  elapsed = std::min(elapsed, kLongestTick);
  clock_ += elapsed;
  if (replaced_) return {};
  MemberActions actions = stand(elapsed);
  if (!joined_ && clock_ - last_hello_ >= kHelloEvery) {
    last_hello_ = clock_;
    actions.send.emplace_back(identity_.hello);
  }
  if (joined_ && !leaving_) actions += look_for_homes();
  if (leaving_ && !left_heard_ && clock_ - last_left_ >= kLeftEvery) {
    last_left_ = clock_;
    actions.send.emplace_back(Left{*leaving_});
  }
  return actions;
}

MemberActions Member::stand(Ticks elapsed) {
  const bool may_ask = !asking_ && (!last_ask_ || clock_ - *last_ask_ >= kAskEvery);
  if (rejoining_ && may_ask) return ask_register(Revision{last_.closed.value + 1});
  // It still wants to know, and an Abort keeps the others from what it would miss.
  if (open_ && open_->gave_up) return may_ask ? ask_register(open_->revision) : MemberActions{};
  if (gate_.current() < standing_fence()) return {};
  if (start_hold_) {
    start_hold_->stood += elapsed;
    if (start_hold_->stood >= kStartTimeout) drop_start_hold();
    return {};
  }
  Open& open = *open_;
  open.stood += elapsed;
  if (open.stood < open.doubt_after) return {};
  if (!open.asked && (may_ask || asking_)) open.asked = clock_;
  MemberActions actions;
  if (open.asked && !open.wait_on_partition && clock_ - *open.asked >= open.fence_timeout) {
    open.gave_up = true;
    gate_.release();
    actions.warnings.push_back("no verdict on revision " + std::to_string(open.revision.value) +
                               " from coordinator or register: going on with the old plan");
    return actions;
  }
  if (may_ask) actions = ask_register(open.revision);
  return actions;
}

MemberActions Member::applied() {
  MemberActions actions;
  if (replaced_) return actions;
  for (const auto& [revision, step] : gate_.take_applied()) {
    newest_applied_ = {revision, step};
    actions.send.emplace_back(newest_applied_);
  }
  return actions;
}

MemberActions Member::finished(Revision revision) {
  finished_ = revision;
  MemberActions actions;
  actions.send.emplace_back(Finished{revision});
  return actions;
}

MemberActions Member::leave(Step last) {
  leaving_ = last;
  last_left_ = clock_;
  MemberActions actions;
  actions.send.emplace_back(Left{last});
  return actions;
}

Progress Member::progress() const {
  Progress progress;
  progress.step = gate_.current();
  progress.waiting = gate_.current() >= standing_fence();
  const auto in_force = gate_.in_force();
  progress.collecting = in_force && in_force->plan->on &&
                        progress.step < schedule_of(*in_force->plan, in_force->effective).end();
  progress.shares_directory = sight_.sees(Home::directory);
  progress.shares_store = sight_.sees(Home::store);
  progress.home = last_.home;
  progress.closed = last_.closed;
  progress.applied = newest_applied_.revision;
  progress.applied_step = newest_applied_.step;
  progress.finished = finished_;
  progress.missed = missed_;
  return progress;
}

}  // namespace gradmon

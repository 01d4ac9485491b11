// SPDX-License-Identifier: Apache-2.0
#include "control/agree/coordinator.h"

#include <algorithm>
#include <iterator>

#include "control/agree/mutant.h"
#include "control/text/words.h"

namespace gradmon {
namespace {

constexpr Ticks kLongestTick{1'000};
constexpr Ticks kFinishTimeout{10'000};
constexpr Ticks kAbsentTimeout{15'000};
constexpr std::size_t kMostEarly = 100'000;

HistoryEntry history_entry(const OfferedEntry& offered) {
  HistoryEntry entry = history_entry(*offered.plan, offered.at);
  entry.revision = offered.revision;
  return entry;
}

const char* state_name(const Membership::Member& member) {
  if (member.phase == Membership::Phase::absent) return "absent";
  if (member.left()) return "left";
  if (member.gone()) return "dropped";
  if (member.progress.waiting) return "waiting";
  return member.progress.collecting ? "collecting" : "idle";
}

// A warning if GradScalers have skipped a different number of updates on two neighbouring ranks, else "".
// Two ranks are compared only if each has reported a step after the other's last skipped update.
std::string skip_warning(const Membership& members) {
  for (int rank = 1; rank < members.size(); ++rank) {
    const Progress& one = members.of(rank - 1).progress;
    const Progress& other = members.of(rank).progress;
    const bool comparable = one.skipped.last < other.step && other.skipped.last < one.step;
    if (!comparable || one.skipped.count == other.skipped.count) continue;
    return "GradScaler skipped " + std::to_string(one.skipped.count) + " updates on rank " +
           std::to_string(rank - 1) + " and " + std::to_string(other.skipped.count) + " on rank " +
           std::to_string(rank) + ": their parameters differ";
  }
  return "";
}

bool any_absent(const Membership& members) {
  return std::any_of(members.begin(), members.end(),
                     [](const Membership::Member& each) { return each.phase == Membership::Phase::absent; });
}

// The ranks that take part and have not reached step `end`.
std::vector<int> not_at_the_end(const Membership& members, Step end) {
  std::vector<int> ranks;
  for (int rank = 0; rank < members.size(); ++rank) {
    if (members.of(rank).takes_part() && members.of(rank).progress.step < end) ranks.push_back(rank);
  }
  return ranks;
}

std::string revision_text(Revision revision) { return "revision " + std::to_string(revision.value); }

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

constexpr Ticks kAskAgainAfter{250};
constexpr Ticks kAskFor{2'000};
constexpr std::size_t kMostOpen = 16;
constexpr std::size_t kMostOfOne = 48 * 1024;   // bytes of targets in the answer of one rank
constexpr std::size_t kMostOfAll = 512 * 1024;  // bytes of targets in the answers of all ranks

void DryRuns::ask(std::string id, PlanPtr plan, Ticks now) {
  for (const OpenDryRun& question : open_) {
    if (question.id == id) return;
  }
  if (open_.size() == kMostOpen) open_.erase(open_.begin());
  open_.push_back({std::move(id), std::move(plan), now, {}, {}});
}

void DryRuns::on_dry_run_answer(Rank rank, const DryRunAnswer& answer) {
  for (OpenDryRun& question : open_) {
    if (question.id == answer.id) question.answers.emplace(rank.value, answer);
  }
}

std::vector<std::pair<std::vector<int>, DryRun>> DryRuns::due(const Membership& members, Ticks now) {
  std::vector<std::pair<std::vector<int>, DryRun>> due;
  const std::size_t room = std::min(kMostOfOne, kMostOfAll / static_cast<std::size_t>(members.size()));
  for (OpenDryRun& question : open_) {
    if (question.asked && now - *question.asked < kAskAgainAfter) continue;
    question.asked = now;
    std::vector<int> ranks;
    for (int rank = 0; rank < members.size(); ++rank) {
      if (members.of(rank).takes_part() && question.answers.count(rank) == 0) ranks.push_back(rank);
    }
    if (!ranks.empty()) due.emplace_back(std::move(ranks), DryRun{question.id, question.plan, room});
  }
  return due;
}

std::vector<DryRunResult> DryRuns::take_ended(const Membership& members, Ticks now) {
  std::vector<DryRunResult> ended;
  const auto has_ended = [&](const OpenDryRun& question) {
    DryRunResult result;
    result.id = question.id;
    bool all = true;
    for (int rank = 0; rank < members.size(); ++rank) {
      const auto answer = question.answers.find(rank);
      if (answer == question.answers.end()) {
        if (members.of(rank).gone()) continue;
        result.answers.push_back({Rank{rank}, false, 0, "", {}});
        all = all && !members.of(rank).takes_part();
      } else {
        const DryRunAnswer& given = answer->second;
        result.answers.push_back({Rank{rank}, true, given.matches, given.objection, given.targets});
      }
    }
    if (!all && now - question.begun < kAskFor) return false;
    ended.push_back(std::move(result));
    return true;
  };
  open_.erase(std::remove_if(open_.begin(), open_.end(), has_ended), open_.end());
  return ended;
}

CoordinatorActions& CoordinatorActions::operator+=(CoordinatorActions other) {
  std::move(other.send.begin(), other.send.end(), std::back_inserter(send));
  std::move(other.log.begin(), other.log.end(), std::back_inserter(log));
  std::move(other.warnings.begin(), other.warnings.end(), std::back_inserter(warnings));
  std::move(other.dry_runs.begin(), other.dry_runs.end(), std::back_inserter(dry_runs));
  if (other.write_back) write_back = std::move(other.write_back);
  return *this;
}

bool Agreement::note(const LogEntry& entry) {
  const auto logged = log.append(entry);
  const std::string before = std::exchange(log_error, logged ? "" : logged.error());
  if (!logged && log_error != before) out.warnings.push_back("decision log: " + log_error);
  return logged.has_value();
}

void Agreement::send(int rank, Message message) {
  out.send.push_back({{{rank, members.of(rank).incarnation}}, std::move(message)});
}

void Agreement::send_known_decisions() {
  Outgoing decided{{}, Decided{last}};
  for (int rank = 0; rank < members.size(); ++rank) {
    const Membership::Member& member = members.of(rank);
    const bool asked = !mutant_active(Mutant::verdict_without_plan) || member.asked;
    if (member.takes_part() && asked) decided.to.emplace_back(rank, member.incarnation);
  }
  if (!decided.to.empty()) out.send.push_back(std::move(decided));
}

void Agreement::take_commit(const Verdict& commit) {
  last.commit = commit;
  committed.add(commit);
  budget.on_commit(*commit.plan);
  members.plan_was_effective();
  ranks_to_start.clear();
}

// If the log is lost, a rank's new process may have replaced an unknown process that still holds a lease.
std::string Agreement::why_not_ready() const {
  std::string why = members.why_not_ready(clock);
  if (!why.empty() || !log_lost || clock >= kAbsentTimeout) return why;
  for (int rank = 0; rank < members.size(); ++rank) {
    const Membership::Member& member = members.of(rank);
    if (member.takes_part() && member.hello.held_epoch.empty())
      return "waiting until the lease of rank " + std::to_string(rank) + "'s previous process has expired";
  }
  return why;
}

CoordinatorActions Coordinator::restore(const std::vector<LogEntry>& entries, WallTime now) {
  restored_ = true;
  state_.now = now;
  state_.journal.begin_at(
      static_cast<Journal::Key>(std::max<WallTime>(state_.now, 1)));  // above all earlier keys
  std::optional<OfferedEntry> open;
  for (const LogEntry& entry : entries) {
    if (const auto* joined = std::get_if<JoinedEntry>(&entry)) {
      state_.members.restore(*joined, state_.clock);
      own_.note_earlier_epoch(joined->hello);
    }
    if (const auto* gone = std::get_if<DepartureEntry>(&entry)) state_.members.restore(*gone);
    if (const auto* ended = std::get_if<WrittenBackEntry>(&entry)) own_.restore_end(ended->revision);
    if (const auto* applied = std::get_if<AppliedEntry>(&entry)) state_.committed.announce(applied->revision);
    if (const auto* asked = std::get_if<OfferedEntry>(&entry)) {
      open = *asked;
      state_.next = std::max(state_.next, {asked->revision.value + 1});
    }
    if (const auto* verdict = std::get_if<Verdict>(&entry)) {
      state_.last.closed = std::max(state_.last.closed, verdict->revision);
      state_.next = std::max(state_.next, {verdict->revision.value + 1});
      if (verdict->commit()) state_.take_commit(*verdict);
      if (!open || open->revision != verdict->revision) continue;
      HistoryEntry decided = history_entry(*open);
      enter_verdict(decided, *verdict);
      state_.journal.restore(std::move(decided));
      open.reset();
    }
  }
  state_.members.begin_incarnation();
  if (open && open->revision > state_.last.closed) proposals_.restore(*open, history_entry(*open));
  return take_actions();
}

CoordinatorActions Coordinator::begin(PlanPtr from_file, WallTime now) {
  state_.begun = true;
  state_.now = now;
  own_.begin(from_file);
  if (restored_) {
    const PlanPtr newest = newest_plan();
    const bool known = from_file && newest && from_file->file && config_save(*newest) &&
                       *config_save(*newest) == *from_file->file;
    const bool asks = from_file && !known && (from_file->on || !newest_is_off());
    if (asks) proposals_.propose(std::move(from_file));
  } else if (from_file && from_file->on) {
    starts_on_ = true;
    proposals_.propose(std::move(from_file));
  }
  advance();
  for (const Envelope& envelope : std::exchange(early_, {})) {
    hear(envelope);
    advance();
  }
  return take_actions();
}

CoordinatorActions Coordinator::propose(PlanPtr plan, WallTime now) {
  state_.now = now;
  proposals_.propose(std::move(plan));
  advance();
  return take_actions();
}

CoordinatorActions Coordinator::capture(std::shared_ptr<Plan> richer, WallTime now) {
  state_.now = now;
  own_.capture(std::move(richer));
  advance();
  return take_actions();
}

bool Coordinator::cancel(const std::string& by, CoordinatorActions& actions, WallTime now) {
  state_.now = now;
  const bool any = proposals_.cancel(by);
  actions += take_actions();
  return any;
}

bool Coordinator::evict(Rank rank, const std::string& by, CoordinatorActions& actions) {
  if (!state_.members.evict(rank, by)) return false;
  state_.note(
      DepartureEntry{rank, DepartureEntry::How::evicted, state_.members.of(rank.value).progress.step, by});
  state_.out.warnings.push_back("rank " + std::to_string(rank.value) + " was evicted by " + by +
                                " and will be dropped in 15 s");
  actions += take_actions();
  return true;
}

CoordinatorActions Coordinator::tick(Ticks elapsed, WallTime now) {
  state_.now = now;
  state_.clock += std::min(elapsed, kLongestTick);
  if (!state_.begun) return {};
  for (const int rank : state_.members.drop_silent(state_.clock)) note_departure(rank);
  // Ranks that died before a new epoch began (the log was lost) will never be heard.
  for (int rank = 0; state_.log_lost && state_.clock >= kAbsentTimeout && rank < state_.members.size();
       ++rank)
    state_.members.stop_waiting_for(Rank{rank});
  advance();
  own_.check_ended();
  advance_dry_runs();
  own_.propose_due();
  if (proposals_.waiting() != nullptr) advance();
  return take_actions();
}

void Coordinator::advance() {
  if (!state_.begun) return;
  own_.propose_inherited();
  proposals_.advance();
}

CoordinatorActions Coordinator::dry_run(std::string id, PlanPtr plan) {
  dry_runs_.ask(std::move(id), std::move(plan), state_.clock);
  advance_dry_runs();
  return take_actions();
}

// Sends the questions of dry runs that are due, and takes the results of ended dry runs.
void Coordinator::advance_dry_runs() {
  for (auto& [ranks, question] : dry_runs_.due(state_.members, state_.clock)) {
    Outgoing asked{{}, std::move(question)};
    for (const int rank : ranks) asked.to.emplace_back(rank, state_.members.of(rank).incarnation);
    state_.out.send.push_back(std::move(asked));
  }
  auto ended = dry_runs_.take_ended(state_.members, state_.clock);
  std::move(ended.begin(), ended.end(), std::back_inserter(state_.out.dry_runs));
}

bool Coordinator::may_exit() const {
  return !state_.committed.write_back_outstanding() &&
         std::none_of(state_.members.begin(), state_.members.end(),
                      [](const Membership::Member& each) { return each.takes_part(); });
}

PlanPtr Coordinator::newest_plan() const {
  const PlanPtr proposed = proposals_.newest_plan();
  return proposed ? proposed : committed_plan();
}

bool Coordinator::newest_is_off() const {
  const PlanPtr newest = newest_plan();
  if (!newest || !newest->on) return true;
  return !proposals_.busy() && state_.committed.ended();
}

bool Coordinator::applied_by_all(Revision revision) const {
  return std::all_of(state_.members.begin(), state_.members.end(), [&](const Membership::Member& each) {
    return each.phase != Membership::Phase::absent && each.has_applied(revision);
  });
}

void Coordinator::on_hello(Rank rank, const Hello& hello) {
  Membership::Answer answer = state_.members.on_hello(rank, hello, state_.clock);
  if (answer.late) return;
  Welcome welcome = std::move(answer.welcome);
  // If the rank's epoch began later than this hub's clock, the clock was set back, and this epoch is the
  // newer one. Otherwise the epoch of the higher order is newer, and the rank does not join.
  if (hello.held_epoch != state_.job.epoch && hello.epoch_order > state_.now)
    state_.order = std::max(state_.order, hello.epoch_order + 1);
  const bool admitted = welcome.refused.empty() && !state_.members.of(rank.value).logged;
  if (admitted) {
    own_.note_earlier_epoch(hello);
    if (hello.held) own_.on_joined(hello);
    Membership::Member& member = state_.members.of(rank.value);
    member.logged = true;
    state_.note(JoinedEntry{rank, member.incarnation, member.hello});
    const bool on = state_.collects();
    if (answer.joined && on) state_.ranks_to_start.insert(rank.value);
    if (answer.joined && !on && state_.last.commit) {
      // It collects nothing, like all other ranks.
      state_.in_force = state_.last.commit->revision;
      member.progress.applied = member.progress.finished = state_.last.commit->revision;
      member.progress.applied_step = hello.step;
    }
    proposals_.on_joined(member);
  }
  // After the first commit a rank that joins starts with the decisions in `last`.
  welcome.epoch_starts_on = starts_on_ && !state_.last.commit && proposals_.busy();
  welcome.run_id = state_.job.run_id;
  welcome.started = state_.job.started;
  welcome.epoch_order = state_.order;
  welcome.last = state_.last;
  welcome.takes_alerts = true;
  welcome.takes_replicas = true;
  state_.out.send.push_back({{{rank.value, welcome.incarnation}}, std::move(welcome)});
}

CoordinatorActions Coordinator::on_message(const Envelope& envelope, WallTime now) {
  state_.now = now;
  hear(envelope);
  advance();
  return take_actions();
}

CoordinatorActions Coordinator::receive(const Envelope& envelope, WallTime now) {
  state_.now = now;
  hear(envelope);
  return take_actions();
}

// Answers a process that is not, or no longer, a member.
void Coordinator::answer_non_member(const Envelope& envelope) {
  const bool within = envelope.rank.value >= 0 && envelope.rank.value < state_.members.size();
  if (!within || std::holds_alternative<Disconnected>(envelope.message)) return;
  const Membership::Member& holder = state_.members.of(envelope.rank.value);
  Message answer = RejoinRequest{};
  if (holder.takes_part() && !state_.members.is_from_present_process(envelope)) answer = Replaced{};
  if (std::holds_alternative<Left>(envelope.message)) answer = LeftAck{};
  state_.out.send.push_back({{{envelope.rank.value, envelope.incarnation}}, std::move(answer)});
}

void Coordinator::hear(const Envelope& envelope) {
  const Message& message = envelope.message;
  if (const auto* hello = std::get_if<Hello>(&message)) {
    if (state_.begun) return on_hello(envelope.rank, *hello);
    if (early_.size() < kMostEarly) early_.push_back(envelope);
    return;
  }
  if (envelope.epoch != state_.job.epoch) return;
  Membership::Member* const member = state_.members.find(envelope);
  if (member == nullptr) return answer_non_member(envelope);
  member->last_heard = state_.clock;
  member->heard_since_hello = true;
  proposals_.on_answer(*member, message);
  if (const auto* applied = std::get_if<Applied>(&message)) {
    note_applied(*member, envelope.rank, *applied);
  } else if (const auto* finished = std::get_if<Finished>(&message)) {
    member->progress.finished = std::max(member->progress.finished, finished->revision);
  } else if (const auto* progress = std::get_if<Progress>(&message)) {
    note_progress(*member, envelope.rank, *progress);
  } else if (const auto* left = std::get_if<Left>(&message)) {
    state_.members.on_left(envelope.rank, left->last);
    state_.note(DepartureEntry{envelope.rank, DepartureEntry::How::left, left->last, ""});
    state_.send(envelope.rank.value, LeftAck{});
  } else if (std::holds_alternative<Disconnected>(message)) {
    state_.members.on_disconnected(envelope.rank, state_.clock, "its process ended");
    note_departure(envelope.rank.value);
  } else if (const auto* answer = std::get_if<DryRunAnswer>(&message)) {
    dry_runs_.on_dry_run_answer(envelope.rank, *answer);
  }
  proposals_.on_heard(envelope.rank.value);
}

void Coordinator::note_departure(int rank) {
  const Membership::Member& member = state_.members.of(rank);
  state_.note(DepartureEntry{Rank{rank}, DepartureEntry::How::dropped, member.last_step, ""});
  state_.ranks_to_start.erase(rank);
  state_.out.warnings.push_back("rank " + std::to_string(rank) + " is dropped at step " +
                                std::to_string(member.last_step.value) + ": " + member.departure_reason);
  proposals_.on_departed();
}

void Coordinator::note_progress(Membership::Member& member, Rank rank, const Progress& progress) {
  note_applied(member, rank, {progress.applied, progress.applied_step});
  state_.members.on_progress(member, progress, state_.clock);
  proposals_.catch_up(progress.closed);
  if (progress.closed < state_.last.closed) state_.send(rank.value, Decided{state_.last});
  if (!member.evicted_by.empty() && !mutant_active(Mutant::evicted_counts_in)) return;
  member.last_acknowledged = state_.clock;
  state_.send(rank.value, ProgressAck{progress.number});
}

void Coordinator::note_applied(Membership::Member& member, Rank rank, const Applied& applied) {
  if (applied.revision == Revision{}) return;
  if (state_.committed.find(applied.revision) != nullptr)
    state_.in_force = std::max(state_.in_force, applied.revision);
  if (member.progress.applied < applied.revision) {
    member.progress.applied = applied.revision;
    member.progress.applied_step = applied.step;
    if (member.progress.step < applied.step) member.progress.step = applied.step;
  }
  HistoryEntry* entry = state_.journal.find(applied.revision);
  if (entry == nullptr) return;
  if (!entry->applied.emplace(rank.value, applied.step.value).second) return;
  state_.journal.touch(applied.revision);
  const CommittedPlan* now_in_force = state_.committed.find(applied.revision);
  if (now_in_force == nullptr) return;
  // Logged, so that a restarted coordinator does not repeat the line.
  if (state_.committed.announce(applied.revision)) {
    state_.note(AppliedEntry{applied.revision});
    const Plan& plan = *now_in_force->verdict.plan;
    state_.out.log.push_back(std::string(plan.on ? "ON" : "OFF") + " at step " +
                             std::to_string(applied.step.value) + " (revision " +
                             std::to_string(applied.revision.value) + ", " + name_of(plan.cause) + ")");
  }
  if (&member == &state_.members.status_member()) state_.committed.forget_before(applied.revision);
}

std::vector<RankStatus> Coordinator::describe_ranks() const {
  std::vector<RankStatus> ranks;
  for (int rank = 0; rank < state_.members.size(); ++rank) {
    const Membership::Member& member = state_.members.of(rank);
    RankStatus status;
    status.rank = Rank{rank};
    status.state = state_name(member);
    if (member.phase != Membership::Phase::absent) {
      static_cast<RankReport&>(status) = member.progress;
      status.host = member.hello.host;
      status.pid = member.hello.pid;
      status.step = member.progress.step.value;
      status.revision = member.progress.applied;
      if (member.progress.applied != Revision{}) status.applied_step = member.progress.applied_step.value;
      status.last_seen_ms = (state_.clock - member.last_heard).count();
      status.accepted = member.progress.closed;
      status.last_stepped_ms = (state_.clock - member.last_moved).count();
    }
    if (status.error.empty()) status.error = member.gone() ? member.departure_reason : member.admission_error;
    ranks.push_back(std::move(status));
  }
  return ranks;
}

Status Coordinator::status() const {
  Status status;
  status.epoch = state_.job.epoch;
  status.launch_id = state_.job.launch_id;
  status.started = state_.job.started;
  status.ranks = describe_ranks();
  status.pending = pending();
  if (std::string warning = skip_warning(state_.members); !warning.empty())
    status.warnings.push_back(std::move(warning));
  const CommittedPlan* running = state_.committed.find(state_.in_force);
  if (running == nullptr) {
    status.reason = state_.refusal.empty() ? "never turned on" : state_.refusal;
    // Nothing can be switched on until all ranks have joined. Says so before the user asks.
    if (state_.refusal.empty() && !status.pending && any_absent(state_.members))
      status.reason = state_.why_not_ready();
    return status;
  }
  const Plan& plan = *running->verdict.plan;
  const Step step = state_.members.status_member().progress.step;
  status.revision = running->verdict.revision;
  status.effective_step = running->verdict.effective.value;
  status.config_sha256 = plan.config_sha256;
  status.collected = running->schedule.collected_before(step);
  status.collect_times = running->schedule.times();
  status.step_interval = plan.step_interval;
  const std::vector<int> collecting = not_at_the_end(state_.members, running->schedule.end());
  const bool ended = collecting.empty();
  status.state = plan.on && !ended ? "on" : "off";
  if (!state_.refusal.empty()) {
    status.reason = state_.refusal;
  } else if (!plan.on) {
    status.reason = "turned off by " + plan.by + " (" + revision_text(status.revision) + ")";
  } else if (ended) {
    status.reason = "finished";
  } else if (step >= running->schedule.end()) {
    status.reason = "waiting for " + names_of_ranks(collecting) + " to finish";
  } else if (plan.returns_to) {
    status.reason = "capturing after " + plan.by;
  } else if (plan.cause == Cause::budget) {
    status.reason = "set by " + plan.by;
  } else if (step < running->schedule.first()) {
    status.reason = "collecting begins at step " + std::to_string(running->schedule.first().value);
  }
  return status;
}

}  // namespace gradmon

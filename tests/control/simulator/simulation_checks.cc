// SPDX-License-Identifier: Apache-2.0
// Simulation: the checks of messages, rows and waits, and the check that the job
// settles once no incident goes on.
#include <algorithm>
#include <utility>

#include "tests/control/simulator/simulation.h"

namespace gradmon {
namespace {

using std::chrono::milliseconds;

constexpr Ticks kOffWithin{2'050};  // 2 s and a turn of the coordinator
constexpr milliseconds kSlice{60};  // pause between two looks of a waiting trainer, and rounding to ms
constexpr milliseconds kOffEverywhere{30'000};  // a lease, and storms that lose every second message
constexpr milliseconds kEvictedWithin{12'000};  // a lease, and messages on the way

std::string named(Revision revision) { return "revision " + std::to_string(revision.value); }

std::string meaning(const Plan& plan) {
  return plan.request_id + plan.by + (plan.on ? " on " : " off ") + std::to_string(plan.collect_times) + " " +
         std::to_string(plan.step_interval) +
         (plan.continues ? " " + std::to_string(plan.continues->first().value) : "");
}

}  // namespace

void Simulation::check_sent(const Message& message) {
  if (const auto* offer = std::get_if<Offer>(&message)) {
    if (hub_.log.failing > 0) return;  // Another plan may get the number of an unlogged off.
    const auto known = epoch_record().offered.emplace(offer->revision.value, meaning(*offer->plan)).first;
    if (known->second != meaning(*offer->plan) && offer->plan->on)
      fail(named(offer->revision) + " means two plans: " + known->second + " and " + meaning(*offer->plan));
  }
  if (const auto* welcome = std::get_if<Welcome>(&message)) check_known_decisions(welcome->last);
  if (const auto* prepare = std::get_if<Prepare>(&message)) check_known_decisions(prepare->last);
  if (const auto* decided = std::get_if<Decided>(&message)) check_known_decisions(decided->last);
}

// A verdict that was sent never changes, unless it is an off that could not be logged.
void Simulation::check_known_decisions(const KnownDecisions& last) {
  EpochRecord& record = epoch_record();
  const Revision newest = last.commit ? last.commit->revision : Revision{};
  if (record.newest_logged > newest && last.closed >= record.newest_logged)
    return fail(named(record.newest_logged) + " was sent as a commit and holds no longer");
  if (!last.commit) return;
  const Verdict& commit = *last.commit;
  const auto [known, first] = record.commits.emplace(newest.value, commit);
  if (first) {
    check_return(record, commit);
  } else {
    const bool same =
        known->second.effective == commit.effective && meaning(*known->second.plan) == meaning(*commit.plan);
    // An unlogged off is forgotten if no rank has received it.
    const bool forgotten = !known->second.plan->on && record.newest_logged < newest;
    if (!same && commit.plan->on && !forgotten) fail(named(newest) + " has two verdicts");
    if (same || !forgotten) return;
    known->second = commit;
  }
  if (hub_.log.has_commit(newest)) {
    record.newest_logged = newest;
    if (!commit.plan->on) record.off[newest.value] = now_;
  } else if (commit.plan->on) {
    fail(named(newest) + " is sent before it is logged");
  }
  for (const auto& [revision, earlier] : record.commits) {
    const bool known_to_it = earlier.plan->on || record.off.count(revision) != 0;
    if (known_to_it && earlier.revision < newest && earlier.effective >= commit.effective)
      fail(named(newest) + " is effective before " + named(earlier.revision));
  }
}

// The end of a capture brings back the plan before it, with the steps that this plan had left. A plan that
// was proposed again during the capture (a resync, the budget) is a capture, too.
void Simulation::check_return(const EpochRecord& record, const Verdict& commit) {
  if (commit.plan->cause != Cause::alert || commit.plan->returns_to) return;
  const Verdict* first = nullptr;  // of the capture
  const Verdict* before = nullptr;
  for (auto at = record.commits.find(commit.revision.value);
       at != record.commits.begin() && before == nullptr;) {
    --at;
    if (at->second.plan->returns_to) {
      first = &at->second;
    } else {
      before = &at->second;
    }
  }
  if (first == nullptr) return fail(named(commit.revision) + " returns from no capture");
  if (before == nullptr) return;  // The capture is of an earlier epoch.
  const Plan& was = *before->plan;
  const Plan& is = *commit.plan;
  const bool same = is.on && is.config_sha256 == was.config_sha256 && is.step_interval == was.step_interval &&
                    is.file == was.file && is.max_wait == was.max_wait;
  if (!same) fail(named(commit.revision) + " returns to another plan than that before the capture");
  const std::int64_t left = collected_from(*before, first->effective);
  if (const std::int64_t now = collected_from(commit, commit.effective); now != left)
    fail(named(commit.revision) + " returns to " + std::to_string(now) + " steps, " + std::to_string(left) +
         " were left");
}

// Every member has promised each new commit that is on, in its present incarnation.
void Simulation::check_decided() {
  const auto& entries = hub_.log.entries;
  for (; hub_.checked < entries.size(); ++hub_.checked) {
    const auto* verdict = std::get_if<Verdict>(&entries[hub_.checked]);
    if (verdict == nullptr || !verdict->commit() || !verdict->plan->on) continue;
    for (const Process& process : processes_) {
      const Membership::Member& member = hub_.coordinator->membership().of(process.rank.value);
      if (!member.takes_part() || member.hello.process_id != process.id) continue;
      const auto promised = process.promised_in.find({hub_.epoch, verdict->revision.value});
      if (promised == process.promised_in.end() || promised->second != member.incarnation)
        fail(named(verdict->revision) + " is committed, and " + process.id + " has not promised it");
    }
  }
}

void Simulation::check_promise(Process& process, Step step) {
  if (!process.promise || step < process.promise->fence) return;
  const Process::Promise promise = *process.promise;
  process.promise.reset();
  if (process.gate->lapsed() || process.member->replaced()) return;
  if (process.member->progress().closed >= promise.revision) return;
  fail(process.id + " broke its promise on " + named(promise.revision) + " at step " +
       std::to_string(step.value));
}

void Simulation::check_wait(const Process& process) {
  const Instant waited = now_ - process.waiting_since - process.stopped_while_waiting;
  if (waited > process.max_wait + kSlice)
    fail(process.id + " waited " + std::to_string(waited.count() / 1000) + " ms at step " +
         std::to_string(process.next.value));
}

void Simulation::check_schedule(const Process& process, Step step, bool collects) {
  if (process.revision == 0) return;
  const auto& commits = epochs_[process.epoch].commits;
  const auto verdict = commits.find(process.revision);
  const std::string where = process.id + " at step " + std::to_string(step.value);
  if (verdict == commits.end()) return fail(where + " runs a revision that was never committed");
  const Verdict& commit = verdict->second;
  if (commit.plan->on && step < commit.effective) return fail(where + " runs a plan before it is effective");
  if (is_collected(commit, step) != collects) fail(where + (collects ? " collects" : " does not collect"));
}

void Simulation::check_row(Process& process, const Process::Collecting& row) {
  const std::string what = process.id + " counts step " + std::to_string(row.step.value);
  if (now_ >= process.lease_until + milliseconds{1}) return fail(what + " without a lease");
  const auto evicted = evicted_.find(process.id);
  if (evicted != evicted_.end() && evicted->second && now_ > *evicted->second + kEvictedWithin)
    return fail(what + " though it is evicted");
  const EpochRecord& record = epochs_[row.epoch];
  const auto off = record.off.upper_bound(row.revision);
  const bool is_off = off != record.off.end() && row.step >= record.commits.at(off->first).effective;
  if (is_off && now_ > off->second + kOffEverywhere) return fail(what + " long after it was turned off");
  if (hub_.alive) {
    const Membership::Member& member = hub_.coordinator->membership().of(process.rank.value);
    if (member.phase == Membership::Phase::dropped && member.hello.process_id == process.id)
      return fail(what + " though it is dropped");
  }
  rows_.add(row.step, {process.id, row.epoch, row.revision, process.unknown});
}

// A coordinator that has lost its log knows only the process of the rank that it
// admits, or none if it stops waiting for the rank. Marks the others as unknown.
void Simulation::note_unknown(int rank, const std::string& known) {
  for (Process& process : processes_) {
    if (process.rank.value != rank || process.id == known) continue;
    process.unknown = true;
    rows_.mark_unknown(process.id, Step{-1});
  }
}

// If the coordinator drops a process, marks that process's rows after the last step it has heard of.
void Simulation::note_dropped() {
  if (!hub_.alive) return;
  const Membership& members = hub_.coordinator->membership();
  for (int rank = 0; rank < members.size(); ++rank) {
    const Membership::Member& member = members.of(rank);
    auto& [phase, id] = hub_.seen[static_cast<std::size_t>(rank)];
    const bool was = phase == member.phase && id == member.hello.process_id;
    if (was) continue;
    for (Process& process : processes_) {
      if (process.id == member.hello.process_id && member.takes_part()) process.unknown = false;
    }
    const bool never_heard = phase == Membership::Phase::absent;
    phase = member.phase;
    id = member.hello.process_id;
    if (never_heard && hub_.epochs > 1) note_unknown(rank, id);
    if (phase != Membership::Phase::dropped) continue;
    if (!id.empty()) rows_.mark_unknown(id, member.last_step);
  }
}

void Simulation::check_hub() {
  if (off_asked_ && hub_.ticked - off_asked_->at > kOffWithin) {
    const HistoryEntry* entry = hub_.coordinator->journal().find_request(off_asked_->request_id);
    if (entry == nullptr || !entry->final)
      fail("off is not decided after " + std::to_string(kOffWithin.count()) + " ms");
    off_asked_.reset();
  }
  if (++hub_.turns % 64 != 0 || !hub_.coordinator->busy()) return;
  const auto pending = hub_.coordinator->status().pending;
  if (!pending || pending->reason.empty()) fail("a change is pending without a reason");
}

void Simulation::check_write_back(const CoordinatorActions& actions) {
  const Revision revision = actions.write_back->revision;
  const std::string what = "the write-back of " + named(revision);
  EpochRecord& record = epoch_record();
  const auto verdict = record.commits.find(revision.value);
  if (verdict == record.commits.end() && hub_.log.has_commit(revision)) return;  // Never sent: all had left.
  if (verdict == record.commits.end()) return fail(what + " is of no commit");
  if (!verdict->second.plan->file) return fail(what + " is of a capture");
  const bool again = !record.written_back.insert(revision.value).second;
  if (again && hub_.log.failing == 0 && !hub_.log_failed) return fail(what + " comes twice");
  if (actions.write_back->file != *verdict->second.plan->file) return fail(what + " is of another file");
  const bool on = verdict->second.plan->on;
  for (const Process* one : newest_processes_) {
    if (one == nullptr || !one->alive || one->leave_by) continue;
    const bool off = one->revision == 0 || one->revision >= revision.value;  // 0: off after a lapse
    const bool done = on ? one->finished >= revision : off;
    const Membership::Member& member = hub_.coordinator->membership().of(one->rank.value);
    if (done || member.gone() || member.hello.process_id != one->id) continue;
    const bool said = std::any_of(actions.warnings.begin(), actions.warnings.end(), [&](const auto& line) {
      return line.find(" " + std::to_string(one->rank.value)) != std::string::npos &&
             line.find("did not report the end") != std::string::npos;
    });
    if (!said) return fail(what + " comes before " + one->id + " has finished");
  }
}

std::string Simulation::changes_without_end() const {
  for (const std::string& change : changes_) {
    const HistoryEntry* entry = hub_.coordinator->journal().find_request(change);
    if (entry == nullptr) return "change " + change + " was forgotten";
    if (!entry->final || entry->verdict.empty()) return "change " + change + " has no final verdict";
    const bool refused = entry->reason.find("rejected by") != std::string::npos ||
                         entry->reason.find("no target") != std::string::npos ||
                         entry->reason.find("withdrawn") != std::string::npos ||
                         entry->reason.find("superseded") != std::string::npos;
    if (entry->verdict == "abort" && !refused) return "change " + change + " was dropped: " + entry->reason;
  }
  return "";
}

bool Simulation::settled_but_for_busy() const {
  const auto entries = hub_.coordinator->journal().entries();
  for (std::size_t i = entries.size() - std::min<std::size_t>(entries.size(), 6); i < entries.size(); ++i) {
    if (entries[i].reason.find("is busy") != std::string::npos) return true;
  }
  return false;
}

bool Simulation::on_everywhere(const std::string& request_id) {
  const auto& commits = epoch_record().commits;
  if (commits.empty() || commits.rbegin()->second.plan->request_id != request_id) return false;
  return std::all_of(newest_processes_.begin(), newest_processes_.end(), [&](const Process* process) {
    return process == nullptr || !process->alive || process->revision == commits.rbegin()->first;
  });
}

bool Simulation::progressing_to_end() {
  const auto& commits = epoch_record().commits;
  if (commits.empty()) return false;
  const Verdict& newest = commits.rbegin()->second;
  const Step last = std::max(schedule_of(*newest.plan, newest.effective).end(), newest.effective,
                             [](Step a, Step b) { return a < b; });
  return std::any_of(newest_processes_.begin(), newest_processes_.end(), [&](const Process* process) {
    return process != nullptr && process->alive && !process->waiting && process->next <= last &&
           last < kNever;
  });
}

std::string Simulation::why_not_settled() {
  const Membership& members = hub_.coordinator->membership();
  const auto pending = hub_.coordinator->status().pending;
  bool any = false;
  bool lost = false;  // a rank died before the coordinator heard of it
  for (std::size_t rank = 0; rank < newest_processes_.size(); ++rank) {
    const Process* process = newest_processes_[rank];
    any = any || (process != nullptr && process->alive && evicted_.count(process->id) == 0);
    lost = lost || (process != nullptr && !process->alive &&
                    members.of(static_cast<int>(rank)).phase == Membership::Phase::absent);
  }
  if (!any) return "";
  if (lost && pending && pending->reason.find("Monitor") != std::string::npos) return "";
  const auto& commits = epoch_record().commits;
  const Revision newest = commits.empty() ? Revision{} : Revision{commits.rbegin()->first};
  for (const Process* process : newest_processes_) {
    if (process == nullptr) return "a rank is not there yet";
    if (!process->alive || process->leave_by || evicted_.count(process->id) != 0) continue;
    if (process->waiting) return process->id + " waits at step " + std::to_string(process->next.value);
    const auto in_force = process->gate->in_force();
    const bool collects_nothing = hub_.coordinator->newest_is_off() && (!in_force || !in_force->plan->on);
    if (!collects_nothing && (process->revision != newest.value || process->epoch != hub_.epoch))
      return process->id + " runs revision " + std::to_string(process->revision) + ", not " +
             std::to_string(newest.value) + (pending ? " (" + pending->reason + ")" : "");
  }
  if (hub_.coordinator->busy()) return "a change is pending";
  if (std::string open = changes_without_end(); !open.empty()) return open;
  const bool on = newest != Revision{} && commits.rbegin()->second.plan->on;
  if (on && epoch_record().written_back.count(newest.value) == 0) return "the end is not written back";
  return "";
}

namespace {

using std::chrono::milliseconds;
using Fault = Incident::Kind;

constexpr milliseconds kHubSeesTheEnd{3};

}  // namespace

void Simulation::begin_incident(const Incident& incident, std::uint32_t index) {
  if (trace_)
    trace_line(std::string("begins: ") + name_of(incident.kind) + " rank " + std::to_string(incident.rank) +
               " for " + std::to_string(incident.lasts));
  if (incident.kind == Fault::propose) return propose(incident);
  if (incident.kind == Fault::alert) return capture(incident);
  if (incident.kind == Fault::storm) {
    lose_ = incident.lose;
    twice_ = incident.twice;
    delay_ = incident.delay;
  } else if (incident.kind == Fault::stop_hub) {
    hub_.stopped += 1;
  } else if (incident.kind == Fault::log_fails) {
    hub_.log.failing += 1;
    hub_.log_failed = true;
  } else if (incident.kind == Fault::hub_dies) {
    if (!hub_.alive) return;
    kill_hub();
    timeline_.add(now_ + milliseconds{incident.lasts}, Event::Kind::hub_returns, 0,
                  static_cast<std::uint32_t>(incident.keeps));
    return;
  } else if (incident.kind == Fault::cancel) {
    CoordinatorActions actions;
    if (hub_runs()) hub_.coordinator->cancel("the user", actions, now_.count());
    return perform(std::move(actions));
  } else if (Process* process = living_process(incident.rank)) {
    begin_on_rank(*process, incident, index);
  }
  if (incident.lasts > 0)
    timeline_.add(now_ + milliseconds{incident.lasts}, Event::Kind::incident_ends, 0, index);
}

void Simulation::begin_on_rank(Process& process, const Incident& incident, std::uint32_t index) {
  switch (incident.kind) {
    case Fault::crash:
      return crash(process);
    case Fault::leave:
      process.to_leave = true;
      return;
    case Fault::reconnect:
      process.hub_generation = 0;
      process.member->disconnected();
      return wake(process, now_ + kHubSeesTheEnd);
    case Fault::twin:
      spawn(process.rank, process.next);
      return;
    case Fault::evict: {
      CoordinatorActions actions;
      const bool done = hub_runs() && hub_.coordinator->evict(process.rank, "the user", actions);
      // The process that holds the rank number may be an earlier one.
      const auto evicted = [&] {
        return hub_.coordinator->membership().of(process.rank.value).hello.process_id;
      };
      if (done) evicted_[evicted()] = hub_.log.failing == 0 ? std::optional(now_) : std::nullopt;
      return perform(std::move(actions));
    }
    case Fault::costs:
      process.cost += incident.cost;
      break;
    default:
      if (incident.kind != Fault::stop_trainer) process.cut_keeps = incident.keeps != 0;
      hold(process, incident.kind, 1);
  }
  process.held_by.push_back(index);
}

void Simulation::end_incident(const Incident& incident, std::uint32_t index) {
  if (trace_)
    trace_line(std::string("ends: ") + name_of(incident.kind) + " rank " + std::to_string(incident.rank));
  if (incident.kind == Fault::storm) {
    lose_ = twice_ = delay_ = 0;
  } else if (incident.kind == Fault::stop_hub) {
    hub_.stopped -= 1;
    resume_hub();
  } else if (incident.kind == Fault::log_fails) {
    hub_.log.failing -= 1;
  } else if (incident.kind == Fault::crash) {
    if (incident.rank >= script_.world) return;
    Process* dead = newest_processes_[static_cast<std::size_t>(incident.rank)];
    if (dead == nullptr || dead->alive || dead->left || dead->leave_by) return;
    const std::int64_t step = std::max(script_.first_step, dead->next.value - incident.behind);
    spawn(dead->rank, Step{step});
  } else if (incident.kind == Fault::twin) {
    for (Process& process : processes_) {
      if (process.twin && process.alive && process.rank.value == incident.rank) crash(process);
    }
  } else {
    for (Process& process : processes_) {
      const auto held = std::find(process.held_by.begin(), process.held_by.end(), index);
      if (held == process.held_by.end()) continue;
      process.held_by.erase(held);
      if (incident.kind == Fault::costs) {
        process.cost -= incident.cost;
      } else {
        hold(process, incident.kind, -1);
      }
    }
  }
}

// The rank's hub sees the connection end and reports it, unless the rank is cut off.
void Simulation::crash(Process& process) {
  if (trace_) trace_line(process.id + " ends before step " + std::to_string(process.next.value));
  Envelope gone = process.member->to_coordinator(Disconnected{});
  if (process.cut_up == 0)
    timeline_.add(now_ + kHubSeesTheEnd, Event::Kind::hub_message, 0, store(std::move(gone)));
  end_process(process);
}

void Simulation::hold(Process& process, Fault kind, int by) {
  const bool ran = process.trainer_runs();
  if (!ran) process.stopped_while_waiting += now_ - std::max(process.stopped_at, process.waiting_since);
  process.stopped_at = now_;
  if (kind == Fault::stop_trainer) process.trainer_stopped += by;
  if (kind == Fault::stop_agent) process.agent_stopped += by;
  if (kind == Fault::stop_process) process.process_stopped += by;
  if (kind == Fault::cut_up) process.cut_up += by;
  if (kind == Fault::cut_down) process.cut_down += by;
  if (by < 0 && process.alive) resume(process);
}

void Simulation::resume(Process& process) {
  if (process.cut_up == 0 && process.cut_down == 0) {
    for (const auto& [up, message] : std::exchange(process.kept, {}))
      timeline_.add(now_ + Instant{dice_.between(100, 5000)},
                    up ? Event::Kind::hub_message : Event::Kind::rank_message, process.index, message);
  }
  const bool trainer_first = dice_.chance(500);
  if (trainer_first && process.trainer_runs() && std::exchange(process.boundary_due, false))
    try_step(process);
  if (process.alive && process.agent_runs() && (process.turn_due || !process.inbox.empty())) {
    process.turn_due = false;
    for (const std::uint32_t message : std::exchange(process.inbox, {})) read(process, message);
    turn(process);
  }
  if (process.alive && process.trainer_runs() && std::exchange(process.boundary_due, false))
    try_step(process);
}

PlanPtr Simulation::plan_of(const Incident& incident) {
  auto plan = std::make_shared<Plan>();
  plan->on = incident.on != 0;
  plan->collect_times = incident.times;
  plan->step_interval = incident.interval;
  plan->max_wait = Ticks{incident.max_wait};
  if (incident.lookahead > 0) plan->lookahead = incident.lookahead;
  if (incident.later > 0) plan->at = furthest() + incident.later;
  if (incident.budget > 0) plan->max_overhead = static_cast<double>(incident.budget) / 1000;
  plan->by = "user";
  plan->request_id = "u" + std::to_string(proposals_.size());
  plan->config_sha256 = plan->request_id;
  plan->file = FileIdentity{static_cast<std::int64_t>(proposals_.size()), 1, ""};
  proposals_.push_back(incident);
  return plan;
}

// The user saves the file. The coordinator reads it at once, or when it runs again.
void Simulation::propose(const Incident& incident) {
  file_ = plan_of(incident);
  if (!hub_runs()) {
    hub_.file_due = hub_.alive;
    return;
  }
  propose_file();
}

void Simulation::propose_file() {
  hub_.file_due = false;
  changes_.push_back(file_->request_id);
  if (!file_->on) off_asked_ = OffAsked{file_->request_id, hub_.ticked};
  perform(hub_.coordinator->propose(file_, now_.count()));
  wake_hub(now_ + milliseconds{10});
}

// An alert has reached the coordinator, as JobService has it.
void Simulation::capture(const Incident& incident) {
  if (!hub_runs() || !hub_.coordinator->may_capture()) return;
  auto richer = std::make_shared<Plan>(*hub_.coordinator->committed_plan());
  richer->at = Step{0};
  richer->continues.reset();
  richer->max_overhead.reset();
  richer->request_id.clear();
  richer->collect_times = incident.times;
  richer->step_interval = incident.interval;
  richer->by = "alert " + std::to_string(captures_.size());
  richer->config_sha256 = richer->by;
  captures_.emplace(richer->config_sha256, incident);
  perform(hub_.coordinator->capture(std::move(richer), now_.count()));
  wake_hub(now_ + milliseconds{10});
}

tl::expected<std::int64_t, std::string> Simulation::can_carry_out(Rank rank, const Plan& plan) const {
  const Incident& asked = plan.file ? proposals_[static_cast<std::size_t>(plan.file->mtime_ns)]
                                    : captures_.at(plan.config_sha256);
  const bool named = asked.rank == rank.value;
  if (asked.answer == 1 && named) return tl::unexpected(std::string("it cannot"));
  if (asked.answer == 2 || (asked.answer == 3 && !named)) return 0;
  return 1;
}

}  // namespace gradmon

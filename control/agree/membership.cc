// SPDX-License-Identifier: Apache-2.0
#include "control/agree/membership.h"

#include <algorithm>
#include <utility>

#include "control/agree/mutant.h"
#include "control/text/words.h"

namespace gradmon {
namespace {

constexpr Ticks kClaimLasts{3'000};

std::string named(int rank) { return "rank " + std::to_string(rank); }

std::string process_text(const Hello& hello) {
  return "pid " + std::to_string(hello.pid) + " on " + hello.host;
}

}  // namespace

Membership::Membership(JobIdentity job)
    : job_(std::move(job)), members_(static_cast<std::size_t>(job_.world_size)) {}

std::string Membership::objection(Rank rank, const Hello& hello) const {
  if (hello.version != kProtocolVersion) {
    return named(rank.value) + " speaks protocol version " + std::to_string(hello.version) +
           ", this job speaks " + std::to_string(kProtocolVersion);
  }
  if (hello.launch_id != job_.launch_id) {
    return process_text(hello) + " belongs to another launch (\"" + hello.launch_id + "\", this job is \"" +
           job_.launch_id + "\")";
  }
  if (hello.world_size != job_.world_size || rank.value < 0 || rank.value >= job_.world_size) {
    return named(rank.value) + " of world size " + std::to_string(hello.world_size) +
           " cannot join a job of world size " + std::to_string(job_.world_size);
  }
  const Member& held = of(rank.value);
  if (!held.evicted_by.empty() && held.hello.process_id == hello.process_id)
    return named(rank.value) + " was evicted by " + held.evicted_by;
  return "";
}

Membership::Answer Membership::on_hello(Rank rank, const Hello& hello, Ticks now) {
  Answer answer;
  Welcome& welcome = answer.welcome;
  welcome.process_id = hello.process_id;
  welcome.number = hello.number;
  welcome.refused = objection(rank, hello);
  const bool within = rank.value >= 0 && rank.value < size();
  if (!welcome.refused.empty()) {
    if (within && of(rank.value).phase == Phase::absent) of(rank.value).admission_error = welcome.refused;
    return answer;
  }
  Member& held = of(rank.value);
  const bool another = held.phase != Phase::absent && held.hello.process_id != hello.process_id;
  if (another && held.phase == Phase::member) {
    welcome.refused = named(rank.value) + " already belongs to " + process_text(held.hello);
    welcome.retry = true;
    held.admission_error = process_text(hello) + " also claims this rank";
    held.last_claimed = now;
    return answer;
  }
  const bool same = held.phase != Phase::absent && !another;
  const std::uint64_t newest = std::max(held.hello.number, held.progress.number);
  const bool repeated =
      same && held.phase == Phase::member && !held.heard_since_hello && held.joined_since_restart;
  if (same && (hello.number < newest || (hello.number == newest && !repeated))) {
    answer.late = true;
    return answer;
  }
  if (repeated && hello.lapsed == held.hello.lapsed) {
    held.hello.number = hello.number;
    welcome.incarnation = held.incarnation;
    return answer;
  }
  admit(held, hello, now, answer);
  return answer;
}

void Membership::admit(Member& held, const Hello& hello, Ticks now, Answer& answer) {
  // A process that has not lapsed keeps its progress.
  const bool same = held.hello.process_id == hello.process_id;
  const bool goes_on = held.phase == Phase::member && same && !hello.lapsed;
  answer.joined = !goes_on;
  if (held.phase == Phase::member && !goes_on) remember_step(std::max(held.progress.step, hello.step));
  Member taken;
  taken.phase = Phase::member;
  taken.hello = hello;
  taken.hello.held.reset();
  taken.incarnation = ++incarnations_;
  taken.first_incarnation = held.phase != Phase::absent && same ? held.first_incarnation : taken.incarnation;
  taken.first_start = held.phase == Phase::absent ? hello.start_iteration : held.first_start;
  taken.joined_since_restart = true;
  if (goes_on) taken.progress = held.progress;
  taken.progress.step = hello.step;
  taken.last_heard = taken.last_moved = taken.last_acknowledged = now;
  held = std::move(taken);
  answer.welcome.incarnation = held.incarnation;
}

bool Membership::is_from_present_process(const Envelope& envelope) const {
  const Member& holder = of(envelope.rank.value);
  return holder.phase == Phase::member && envelope.incarnation >= holder.first_incarnation;
}

void Membership::on_progress(Member& member, const Progress& progress, Ticks now) {
  member.heard_since_hello = true;
  if (progress.step != member.progress.step) member.last_moved = now;
  // A late message must not overwrite the content of a newer one.
  if (progress.number < member.progress.number) return;
  Progress merged = progress;
  merged.applied = std::max(progress.applied, member.progress.applied);
  if (progress.applied < member.progress.applied) merged.applied_step = member.progress.applied_step;
  merged.finished = std::max(progress.finished, member.progress.finished);
  member.progress = std::move(merged);
}

void Membership::remember_step(Step last) {
  if (!last_departed_step_ || *last_departed_step_ < last) last_departed_step_ = last;
}

void Membership::drop(Member& member, Ticks now, std::string why) {
  member.phase = Phase::dropped;
  member.last_step = member.progress.step;
  member.departure_reason = std::move(why) + ", last heard " +
                            std::to_string((now - member.last_heard).count() / 1000) + " s earlier";
  remember_step(member.last_step);
}

void Membership::on_disconnected(Rank rank, Ticks now, std::string why) {
  Member& member = of(rank.value);
  if (member.phase == Phase::member) drop(member, now, std::move(why));
}

void Membership::on_left(Rank rank, Step last) {
  Member& member = of(rank.value);
  member.phase = Phase::left;
  member.last_step = last;
  member.progress.step = last;
  remember_step(last);
}

std::vector<int> Membership::drop_silent(Ticks now) {
  std::vector<int> dropped;
  for (int rank = 0; rank < size(); ++rank) {
    Member& member = of(rank);
    if (member.phase != Phase::member) continue;
    if (!member.admission_error.empty() && now - member.last_claimed >= kClaimLasts)
      member.admission_error.clear();
    const bool evicted = !member.evicted_by.empty() && now - member.last_acknowledged >= kDropAfter;
    if (!evicted && now - member.last_heard < kDropAfter) continue;
    drop(member, now, evicted ? "evicted by " + member.evicted_by : "silent");
    dropped.push_back(rank);
  }
  return dropped;
}

bool Membership::evict(Rank rank, std::string by) {
  if (rank.value < 0 || rank.value >= size() || of(rank.value).phase != Phase::member) return false;
  of(rank.value).evicted_by = std::move(by);
  return true;
}

void Membership::stop_waiting_for(Rank rank) {
  Member& member = of(rank.value);
  if (member.phase != Phase::absent) return;
  member.phase = Phase::dropped;
  member.departure_reason = "never heard";
}

void Membership::restore(const JoinedEntry& joined, Ticks now) {
  if (joined.rank.value < 0 || joined.rank.value >= size()) return;
  Member& member = of(joined.rank.value);
  if (joined.hello.lapsed && member.phase != Phase::absent) remember_step(joined.hello.step);
  const bool same = member.phase != Phase::absent && member.hello.process_id == joined.hello.process_id;
  const std::uint64_t first = same ? member.first_incarnation : joined.incarnation;
  const Step first_start = member.phase == Phase::absent ? joined.hello.start_iteration : member.first_start;
  member = {};
  member.first_incarnation = first;
  member.first_start = first_start;
  member.phase = Phase::member;
  member.hello = joined.hello;
  member.incarnation = joined.incarnation;
  member.progress.step = joined.hello.step;
  member.last_heard = member.last_moved = member.last_acknowledged = now;
  incarnations_ = std::max(incarnations_, joined.incarnation);
}

void Membership::restore(const DepartureEntry& gone) {
  if (gone.rank.value < 0 || gone.rank.value >= size()) return;
  Member& member = of(gone.rank.value);
  if (gone.how == DepartureEntry::How::evicted) {
    member.evicted_by = gone.by;
    return;
  }
  member.phase = gone.how == DepartureEntry::How::left ? Phase::left : Phase::dropped;
  member.last_step = member.progress.step = gone.last;
  remember_step(gone.last);
}

void Membership::begin_incarnation() {
  incarnations_ += 1;
  for (Member& member : members_) member.incarnation = incarnations_;
}

Membership::Member* Membership::find(const Envelope& envelope) {
  if (envelope.rank.value < 0 || envelope.rank.value >= size()) return nullptr;
  Member& found = of(envelope.rank.value);
  const bool current =
      found.incarnation == envelope.incarnation || mutant_active(Mutant::old_incarnation_heard);
  return found.phase == Phase::member && current ? &found : nullptr;
}

std::string Membership::why_not_ready(Ticks now) const {
  std::vector<int> absent;
  std::vector<int> silent;
  Ticks longest{};
  std::optional<Step> start;
  for (int rank = 0; rank < size(); ++rank) {
    const Member& member = of(rank);
    if (member.gone()) continue;
    if (member.phase == Phase::absent) {
      if (!member.admission_error.empty()) return member.admission_error;
      absent.push_back(rank);
      continue;
    }
    if (!member.evicted_by.empty()) {
      return "waiting until " + named(rank) + " is dropped (evicted by " + member.evicted_by + ")";
    }
    if (!heard(member, now) || !member.joined_since_restart) {
      silent.push_back(rank);
      longest = std::max(longest, now - member.last_heard);
    }
    if (!effective_seen_ && start && *start != member.first_start) {
      return named(rank) + " starts at step " + std::to_string(member.first_start.value) +
             ", but a lower rank starts at step " + std::to_string(start->value) +
             ": all ranks need the same start_iteration";
    }
    start = member.first_start;
  }
  if (!absent.empty()) {
    return "waiting for " + names_of_ranks(absent) + " of " + std::to_string(size()) + " to create " +
           (absent.size() == 1 ? "its" : "their") + " Monitor";
  }
  if (silent.empty()) return "";
  return "waiting for " + names_of_ranks(silent) + " (not heard for " +
         std::to_string(longest.count() / 1000) + " s)";
}

const Membership::Member& Membership::status_member() const {
  const auto found = std::find_if(members_.begin(), members_.end(),
                                  [](const Member& member) { return member.takes_part(); });
  return found == members_.end() ? members_.front() : *found;
}

void Membership::clear_answers() {
  for (Member& member : members_) {
    member.offered.reset();
    member.ready.reset();
    member.reject.reset();
    member.busy.reset();
    member.asked = false;
  }
}

}  // namespace gradmon

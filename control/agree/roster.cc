// SPDX-License-Identifier: Apache-2.0
#include "control/agree/roster.h"

#include <algorithm>
#include <utility>

namespace gradmon {
namespace {

constexpr Ticks kPingEvery{250};
constexpr int kPings = 8;
constexpr Ticks kClaimHolds{5'000};  // what a claim has found out is stale after

std::string named(int rank) { return "rank " + std::to_string(rank); }

bool sees(const Joined& sight, Home home) {
  if (home == Home::undecided) return sight.shares_directory || sight.shares_store;
  return home == Home::store ? sight.shares_store : sight.shares_directory;
}

}  // namespace

Roster::Roster(Expected expected, LivenessOf liveness_of)
    : expected_(std::move(expected)),
      liveness_of_(std::move(liveness_of)),
      seats_(static_cast<std::size_t>(expected_.world_size)) {}

std::string Roster::objection(Rank rank, const Hello& hello) const {
  if (hello.version != kProtocolVersion) {
    return named(rank.value) + " speaks protocol version " + std::to_string(hello.version) +
           ", this job speaks " + std::to_string(kProtocolVersion);
  }
  if (hello.launcher_id != expected_.launcher_id) {
    return "pid " + std::to_string(hello.pid) + " on " + hello.host + " belongs to another launch (\"" +
           hello.launcher_id + "\", this job is \"" + expected_.launcher_id + "\")";
  }
  if (hello.world_size != expected_.world_size || rank.value < 0 || rank.value >= expected_.world_size) {
    return named(rank.value) + " of " + std::to_string(hello.world_size) + " does not fit a job of " +
           std::to_string(expected_.world_size);
  }
  if (hello.start_iteration != expected_.start_iteration) {
    return named(rank.value) + " starts at step " + std::to_string(hello.start_iteration.value) +
           ", rank 0 at step " + std::to_string(expected_.start_iteration.value);
  }
  return "";
}

bool Roster::defended(Seat& held, Ticks now) {
  if (held.state != State::welcomed && held.state != State::joined) return false;
  switch (liveness_of_(held.hello)) {
    case Liveness::lives:
      return true;
    case Liveness::gone:
      return false;
    case Liveness::unknown:
      break;
  }
  if (!held.claim || now - held.claim->begun >= kClaimHolds)
    held.claim = Seat::Claim{now, 0, pings_ + 1, false};
  return held.claim->answered || now - held.claim->begun < kPings * kPingEvery;
}

std::vector<std::pair<int, Ping>> Roster::pings_due(Ticks now) {
  std::vector<std::pair<int, Ping>> due;
  for (int rank = 0; rank < size(); ++rank) {
    auto& claim = seat(rank).claim;
    if (!claim || claim->answered || claim->pings >= kPings) continue;
    if (now - claim->begun < claim->pings * kPingEvery) continue;
    claim->pings += 1;
    due.emplace_back(rank, Ping{++pings_});
  }
  return due;
}

void Roster::on_pong(Seat& seat, const Pong& pong) {
  if (seat.claim && pong.number >= seat.claim->first_ping) seat.claim->answered = true;
}

Welcome Roster::on_hello(Rank rank, const Hello& hello, Ticks now) {
  Welcome welcome;
  welcome.process_id = hello.process_id;
  welcome.refused = objection(rank, hello);
  const bool within = rank.value >= 0 && rank.value < size();
  const bool another = within && seat(rank.value).hello.process_id != hello.process_id;
  if (welcome.refused.empty() && another && defended(seat(rank.value), now)) {
    const Hello& holder = seat(rank.value).hello;
    welcome.refused =
        named(rank.value) + " is taken by pid " + std::to_string(holder.pid) + " on " + holder.host;
    welcome.again = true;
  }
  if (!welcome.refused.empty()) {
    if (within && seat(rank.value).state == State::absent) seat(rank.value).trouble = welcome.refused;
    return welcome;
  }
  Seat& held = seat(rank.value);
  if (held.state == State::absent || held.hello.process_id != hello.process_id) {
    Seat taken;
    taken.state = State::welcomed;
    taken.hello = hello;
    taken.incarnation = held.incarnation + 1;
    taken.rejoined = held.state != State::absent;
    taken.progress.step = hello.start_iteration;
    taken.last_moved = now;
    held = std::move(taken);
  }
  held.last_seen = now;
  welcome.incarnation = held.incarnation;
  welcome.rejoined = held.rejoined;
  return welcome;
}

void Roster::on_progress(Seat& seat, const Progress& progress, Ticks now) {
  if (progress.step != seat.progress.step) seat.last_moved = now;
  // A late message must not take back what an earlier one has said.
  Progress merged = progress;
  merged.applied = std::max(progress.applied, seat.progress.applied, [](auto a, auto b) { return a < b; });
  if (progress.applied < seat.progress.applied) merged.applied_step = seat.progress.applied_step;
  if (progress.finished < seat.progress.finished) merged.finished = seat.progress.finished;
  seat.progress = std::move(merged);
  seat.sight.shares_directory |= progress.shares_directory;
  seat.sight.shares_store |= progress.shares_store;
  join_if_seen(seat);
}

void Roster::on_joined(Rank rank, Seat& seat, const Joined& joined) {
  // What it has seen it goes on seeing: a late letter takes nothing back.
  seat.sight.shares_directory |= joined.shares_directory;
  seat.sight.shares_store |= joined.shares_store;
  seat.sight.reason = joined.reason;
  seat.trouble = named(rank.value) + ": " + joined.reason;
  join_if_seen(seat);
}

void Roster::join_if_seen(Seat& seat) {
  if (!sees(seat.sight, home_)) return;
  seat.trouble.clear();
  if (seat.state == State::welcomed) seat.state = State::joined;
}

bool Roster::all_see(Home home) const {
  return std::all_of(seats_.begin(), seats_.end(), [&](const Seat& seat) {
    return seat.left() || (seat.answers() && sees(seat.sight, home));
  });
}

Home Roster::settle_home() {
  for (const Home home : {Home::directory, Home::store}) {
    if (home_ == Home::undecided && all_see(home)) home_ = home;
  }
  return home_;
}

std::string Roster::nothing_in_common() const {
  std::string text = "the ranks have no register in common";
  const char* separator = ": ";
  for (int rank = 0; rank < size(); ++rank) {
    const Seat& asked = seat(rank);
    if (asked.left() || asked.sight.reason.empty()) continue;
    text += separator + named(rank) + " " + asked.sight.reason;
    separator = "; ";
  }
  return text;
}

Roster::Seat* Roster::find(const Letter& letter) {
  if (letter.rank.value < 0 || letter.rank.value >= size()) return nullptr;
  Seat& found = seat(letter.rank.value);
  return found.state != State::absent && found.incarnation == letter.incarnation ? &found : nullptr;
}

std::string Roster::unready() const {
  for (int rank = 0; rank < size(); ++rank) {
    const Seat& asked = seat(rank);
    if (asked.left()) continue;
    if (!asked.trouble.empty()) return asked.trouble;
    if (!asked.answers()) return "waiting for " + named(rank);
  }
  return home_ == Home::undecided ? nothing_in_common() : "";
}

void Roster::clear_answers() {
  for (Seat& seat : seats_) {
    seat.ready.reset();
    seat.reject.reset();
  }
}

}  // namespace gradmon

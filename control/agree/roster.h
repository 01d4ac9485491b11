// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "control/agree/message.h"

namespace gradmon {

// Rank 0's list of the ranks: who has joined, and what each has last said of
// itself. No rank is presumed gone: silence is not death. One thread.
class Roster {
 public:
  enum class State { absent, welcomed, joined, left };

  struct Seat {
    State state = State::absent;
    Hello hello;
    std::uint64_t incarnation = 0;
    bool rejoined = false;
    std::string trouble;  // why it cannot be armed; "" where it can
    Joined sight;         // which homes of the register it sees
    Progress progress;
    Ticks last_seen{};   // when it was last heard
    Ticks last_moved{};  // when its step last changed
    Step last_step;      // of one that has left
    // Another process claims this number: whether this one answers.
    struct Claim {
      Ticks begun{};
      int pings = 0;
      std::uint64_t first_ping = 0;
      bool answered = false;
    };
    std::optional<Claim> claim;
    // The answer to the open revision, if any.
    std::optional<Ready> ready;
    std::optional<Reject> reject;

    bool answers() const { return state == State::joined; }
    bool left() const { return state == State::left; }
    // What it has applied and finished, or missed; left counts as all of it.
    bool has_applied(Revision revision) const { return left() || progress.applied >= revision; }
    bool has_finished(Revision revision) const { return left() || progress.finished >= revision; }
  };

  struct Expected {
    int world_size = 1;
    std::string launcher_id;
    Step start_iteration;
  };

  // Whether the process that said this Hello still lives, asked for a rank that
  // a second process claims. Of one on another host that is unknown: it is asked
  // by eight Pings in two seconds, and lives if it answers one.
  enum class Liveness { lives, gone, unknown };
  using LivenessOf = std::function<Liveness(const Hello&)>;

  Roster(Expected expected, LivenessOf liveness_of);

  // Takes a rank in, or says in Welcome::refused why not. Fills in of the
  // answer what the roster knows.
  Welcome on_hello(Rank rank, const Hello& hello, Ticks now);
  void on_progress(Seat& seat, const Progress& progress, Ticks now);
  void on_pong(Seat& seat, const Pong& pong);
  void on_joined(Rank rank, Seat& seat, const Joined& joined);
  // The home of the register, once all ranks have joined and see one in common
  // (the directory rather than the store); then for good.
  Home settle_home();
  // The Pings that are due, by rank.
  std::vector<std::pair<int, Ping>> pings_due(Ticks now);

  // The seat of a letter's sender; null: no such member, or an older incarnation.
  Seat* find(const Letter& letter);
  Seat& seat(int rank) { return seats_[static_cast<std::size_t>(rank)]; }
  const Seat& seat(int rank) const { return seats_[static_cast<std::size_t>(rank)]; }
  int size() const { return static_cast<int>(seats_.size()); }

  // "" where every rank can be asked, else why not: "waiting for rank 3".
  std::string unready() const;
  void clear_answers();

 private:
  std::string objection(Rank rank, const Hello& hello) const;
  // Whether the process that holds the seat keeps it although another claims it.
  bool defended(Seat& held, Ticks now);
  void join_if_seen(Seat& seat);
  bool all_see(Home home) const;
  std::string nothing_in_common() const;

  const Expected expected_;
  const LivenessOf liveness_of_;
  Home home_ = Home::undecided;
  std::uint64_t pings_ = 0;  // sent so far
  std::vector<Seat> seats_;
};

}  // namespace gradmon

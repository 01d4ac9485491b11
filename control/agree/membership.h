// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "control/agree/decision_log.h"
#include "control/agree/message.h"

namespace gradmon {

// The coordinator's list of ranks: who is a member, and the last message of each. One thread.
class Membership {
 public:
  enum class Phase {
    absent,   // not heard yet in this epoch; waited for
    member,   // asked, waited for
    left,     // has sent Left; counts as ready, applied and finished
    dropped,  // dead, or silent for too long; no longer asked or waited for
  };

  struct Member {
    Phase phase = Phase::absent;
    Hello hello;
    std::uint64_t incarnation = 0;
    std::uint64_t first_incarnation = 0;  // of the same process
    Step first_start;                     // of the rank's first process; later ones may resume anywhere
    // The reason why it cannot take part, or the other process that claims its number; "": none.
    std::string admission_error;
    Ticks last_claimed{};  // when another process last claimed its number
    Progress progress;
    Ticks last_heard{};
    Ticks last_moved{};  // when its step last changed
    Ticks last_acknowledged{};
    Step last_step;                // set once it has left or was dropped
    std::string departure_reason;  // the reason for dropping it
    std::string evicted_by;        // "" unless evicted
    // The answers to the open revision, if any.
    std::optional<Offered> offered;
    std::optional<Ready> ready;
    std::optional<Reject> reject;
    std::optional<Busy> busy;
    bool asked = false;  // the open revision needs its answer
    bool heard_since_hello = false;
    bool logged = false;                // in the decision log
    bool joined_since_restart = false;  // of the coordinator

    bool takes_part() const { return phase == Phase::member; }
    bool left() const { return phase == Phase::left; }
    bool gone() const { return phase == Phase::left || phase == Phase::dropped; }
    // A member that is gone counts as having applied and finished everything.
    bool has_applied(Revision revision) const { return gone() || progress.applied >= revision; }
    bool has_finished(Revision revision) const { return gone() || progress.finished >= revision; }
  };

  // A member that has not been heard for this long is not asked.
  static constexpr Ticks kHeardWithin{2'500};
  // A member that has not been heard for this long is dropped.
  static constexpr Ticks kDropAfter{15'000};

  explicit Membership(JobIdentity job);

  // Admits a rank, or gives the reason in Welcome::refused. Fills in the membership's part of Welcome. Does
  // not give a rank number to another process while its member is present, because that member may still
  // collect. `joined`: the member is now another process, or the same one after a lapse.
  struct Answer {
    Welcome welcome;
    bool joined = false;
    bool late = false;  // a newer message of the same process arrived first; send no answer
  };
  Answer on_hello(Rank rank, const Hello& hello, Ticks now);
  void on_progress(Member& member, const Progress& progress, Ticks now);
  // The rank's side has closed its connection.
  void on_disconnected(Rank rank, Ticks now, std::string why);
  void on_left(Rank rank, Step last);
  // Drops members that are silent or evicted. Returns them.
  std::vector<int> drop_silent(Ticks now);
  bool evict(Rank rank, std::string by);
  // Stops waiting for a rank that was never heard.
  void stop_waiting_for(Rank rank);
  // A plan was effective in this launch. From now on a process may start at any step.
  void plan_was_effective() { effective_seen_ = true; }

  // Restores a rank after a restart of the coordinator.
  void restore(const JoinedEntry& joined, Ticks now);
  void restore(const DepartureEntry& gone);
  // Future incarnations are above all those in the log.
  void begin_incarnation();

  // Returns the sender; null if it is no member, or an older incarnation.
  Member* find(const Envelope& envelope);
  // True if the sender is the process that holds the rank number, in any incarnation.
  bool is_from_present_process(const Envelope& envelope) const;
  Member& of(int rank) { return members_[static_cast<std::size_t>(rank)]; }
  const Member& of(int rank) const { return members_[static_cast<std::size_t>(rank)]; }
  int size() const { return static_cast<int>(members_.size()); }
  auto begin() const { return members_.begin(); }
  auto end() const { return members_.end(); }

  bool heard(const Member& member, Ticks now) const { return now - member.last_heard < kHeardWithin; }
  // "" if every rank can be asked, else the reason: "waiting for rank 3 (not heard for 8 s)".
  std::string why_not_ready(Ticks now) const;
  // The highest last step of all members that were dropped, have lapsed or left.
  std::optional<Step> last_departed_step() const { return last_departed_step_; }
  // The member whose step and plan represent the job: the first that takes part, else rank 0.
  const Member& status_member() const;
  void clear_answers();

 private:
  std::string objection(Rank rank, const Hello& hello) const;
  void admit(Member& held, const Hello& hello, Ticks now, Answer& answer);
  void drop(Member& member, Ticks now, std::string why);
  void remember_step(Step last);

  const JobIdentity job_;
  bool effective_seen_ = false;
  std::uint64_t incarnations_ = 0;  // given so far
  std::optional<Step> last_departed_step_;
  std::vector<Member> members_;
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "control/agree/message.h"
#include "control/agree/step_gate.h"
#include "control/aliases.h"

namespace gradmon {

// How long a rank may collect, or keep a promise, without an acknowledgement of the coordinator.
inline constexpr Ticks kLease{10'000};

// The number of this rank's targets that a plan matches, or the reason why this rank cannot carry it out.
// Zero matches in the first step is inconclusive: the coordinator asks again, because the program may still
// call watch(). Called on the agent thread; must return at once.
using CanCarryOut = std::function<Result<std::int64_t>(const Plan&)>;

// Actions that the caller must carry out for the member. Messages go to the coordinator.
struct MemberActions {
  std::vector<Message> send;
  std::vector<std::string> warnings;  // for the log
};

// The role of every rank in the agreement: it promises, then obeys. Pure except for the gate. One
// thread (the agent); the caller passes the time, of the gate's clock.
class Member {
 public:
  struct Identity {
    Rank rank;
    Hello hello;
    // Dynamic mode: the second step waits for the answer to Hello, and nothing is collected without a
    // lease. The gate holds the second step before the training thread can reach it.
    bool dynamic = true;
  };

  Member(Identity identity, StepGate& gate, CanCarryOut can_carry_out, ListTargets list_targets = {});

  // Sets the launch id if it was unknown at construction. Call it before the first connected().
  void set_launch_id(std::string id) { identity_.hello.launch_id = std::move(id); }
  // True if the second step is held for the answer to Hello or for the first verdict.
  bool holds_start() const { return start_hold_.has_value(); }
  // The first step has begun. From now on Hello is sent every 250 ms until it is answered.
  MemberActions start(Ticks now);
  // The connection is new, or the coordinator has restarted. Sends Hello again.
  MemberActions connected(Ticks now);
  // The connection is lost. Plan and promise stay until the lease runs out.
  void disconnected();
  // Call it if no answer can ever come. Training goes on, and the rank stays off.
  void give_up(std::string reason);

  // Drops a message of another epoch or of another membership of this rank.
  MemberActions on_envelope(const Envelope& envelope, Ticks now);
  MemberActions on_message(const Message& message, const std::string& epoch, Ticks now);
  // Call it every 10 to 100 ms.
  MemberActions tick(Ticks now);

  // Reports the progress of the training thread and the writer.
  MemberActions applied();  // asks the gate
  MemberActions finished(Revision revision);
  MemberActions leave(Step last);

  // True if an answer or a verdict is outstanding. If so, call tick() every 10 ms, else every 100 ms.
  bool busy() const { return open_ || start_hold_ || !joined_ || leaving_; }
  bool joined() const { return joined_; }
  // Adds the address to a message to the coordinator.
  Envelope to_coordinator(Message message) const;
  bool left_acknowledged() const { return left_acknowledged_; }
  bool replaced() const { return replaced_; }
  const std::string& refused() const { return refused_; }
  // The fields of Progress that concern the agreement; the caller fills in the others.
  Progress progress() const;
  // Returns the message, with its number set. An acknowledgement of that number renews the lease, counted
  // from now.
  Message report(Progress progress, Ticks now);

 private:
  // A revision that this rank was asked about and whose verdict it does not know.
  struct OpenPromise {
    Revision revision;
    Message answer;  // sent again for a repeated Prepare
    Step fence;
  };
  // A message that the coordinator may acknowledge.
  struct Sent {
    std::uint64_t number;
    Ticks at;
    bool lapsed;  // a Hello with `lapsed` set
  };
  struct PendingOffer {
    Offer offer;
    std::optional<Message> answer;  // none: inconclusive so far, the program may still call watch()
  };

  MemberActions take_actions() { return std::exchange(out_, {}); }
  void send_hello();
  void on_welcome(const Welcome& welcome, const std::string& epoch);
  void on_offer(const Offer& offer);
  std::optional<Busy> busy_for(const Offer& offer) const;
  std::optional<Message> answer_to(const Offer& offer) const;
  void on_prepare(const Prepare& prepare);
  void apply_commit(const Verdict& commit);
  void on_dry_run(const DryRun& question);
  void apply_decisions(const KnownDecisions& last);
  void withdraw();
  // Sends Hello again if the gate has lapsed.
  void check_lapsed();
  void acknowledged(std::uint64_t number);
  std::uint64_t record_sent(bool lapsed);
  std::string unmatched_by(const Plan& plan) const;
  void drop_start_hold();
  Step standing_fence() const;  // kNever: none

  // Constant after construction.
  Identity identity_;  // except the launch id
  StepGate& gate_;
  const CanCarryOut can_carry_out_;
  const ListTargets list_targets_;  // null: no target is ever listed

  Ticks now_{};        // of the present call
  MemberActions out_;  // of the present call
  Ticks last_hello_{};
  Ticks last_left_{};
  bool started_ = false;
  bool connected_ = false;
  bool joined_ = false;  // Hello is answered
  bool lapse_reported_ = false;
  bool left_acknowledged_ = false;
  bool replaced_ = false;
  std::optional<Step> leaving_;
  std::string refused_;
  std::string epoch_;              // that the rank last joined; "" before the first
  std::int64_t epoch_order_ = 0;   // of that epoch
  std::uint64_t incarnation_ = 0;  // of the membership in that epoch
  std::string commit_epoch_;       // of held_
  std::string lease_epoch_;        // the epoch whose acknowledgements renew the lease
  Ticks lease_until_ = Ticks::min();
  std::optional<Step> start_hold_;
  std::optional<PendingOffer> pending_offer_;
  std::optional<OpenPromise> open_;
  KnownDecisions last_;          // of the epoch joined
  std::optional<Verdict> held_;  // the newest commit that the rank holds, maybe of an earlier epoch
  std::uint64_t numbers_ = 0;
  std::deque<Sent> sent_;        // not yet acknowledged, oldest first
  std::deque<Applied> entered_;  // revisions of this epoch, not applied yet, and their effective steps
  Applied newest_applied_;       // in this epoch, like finished_
  Revision finished_;
};

}  // namespace gradmon

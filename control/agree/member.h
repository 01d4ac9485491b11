// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "control/agree/message.h"
#include "control/agree/step_gate.h"

namespace gradmon {

// How long a rank may collect, or keep a promise, without an acknowledgement.
inline constexpr Ticks kLease{10'000};

// How many targets of this rank a plan matches, or why this rank cannot carry the plan out.
// Zero matches in the first step is inconclusive: the coordinator asks again, because the
// program may still call watch(). Called on the agent thread; must return at once.
using CanCarryOut = std::function<tl::expected<std::int64_t, std::string>(const Plan&)>;

// What a member wants done. Messages go to the coordinator.
struct MemberActions {
  std::vector<Message> send;
  std::vector<std::string> warnings;  // for the log

  MemberActions& operator+=(MemberActions other);
};

// The role every rank has in the agreement: promises, then obeys. Pure: called
// by one thread (the agent), with the time as a value (of the gate's clock);
// touches the gate alone.
class Member {
 public:
  struct Identity {
    Rank rank;
    Hello hello;
    // Dynamic mode: the step after the first waits for the answer to Hello, and
    // nothing is collected without a lease. The gate holds the start before the
    // trainer can come there.
    bool dynamic = true;
    Ticks max_wait{2'000};  // until a plan says otherwise
  };

  Member(Identity identity, StepGate& gate, CanCarryOut can_carry_out, ListTargets list_targets = {});

  // Before the first connected(), where it was not known before.
  void set_launch_id(std::string id) { identity_.hello.launch_id = std::move(id); }
  // The step after the first is held for the answer to Hello or the first verdict.
  bool holds_start() const { return start_hold_.has_value(); }
  // The first step has begun: Hello is said from now on, each 250 ms until it is answered.
  MemberActions start(Ticks now);
  // There is another way to the coordinator, or another coordinator: says Hello again.
  MemberActions connected(Ticks now);
  // The way to the coordinator is gone. What is held stays, as long as the lease lasts.
  void disconnected();
  // No answer can ever come: goes on alone.
  void give_up(std::string reason);

  // Drops a message of another epoch or of another membership of this rank.
  MemberActions on_envelope(const Envelope& envelope, Ticks now);
  MemberActions on_message(const Message& message, const std::string& epoch, Ticks now);
  // A tick is due every 10 to 100 ms.
  MemberActions tick(Ticks now);

  // What the training thread and the writer have done.
  MemberActions applied();  // asks the gate
  MemberActions finished(Revision revision);
  MemberActions leave(Step last);

  // Something is open: ticks every 10 ms, else every 100.
  bool busy() const { return open_ || start_hold_ || !joined_ || leaving_; }
  bool joined() const { return joined_; }
  // The address of a message to the coordinator.
  Envelope to_coordinator(Message message) const;
  bool left_acknowledged() const { return left_acknowledged_; }
  bool replaced() const { return replaced_; }
  const std::string& refused() const { return refused_; }
  // What Progress says of the agreement; the rest of it is the caller's. Its number
  // is set, and counts as sent now, by report().
  Progress progress(Ticks now) const;
  // The message itself: from here on an acknowledgement of it renews the lease.
  Message report(Progress progress, Ticks now);

 private:
  // A revision that was asked about and is not decided as far as this rank knows.
  struct Open {
    Revision revision;
    Message answer;  // Ready: a repeated question gets the same
    Step fence;
  };
  // What a coordinator may acknowledge.
  struct Sent {
    std::uint64_t number;
    Ticks at;
    bool lapsed;  // a Hello that said so
  };
  struct PendingOffer {
    Offer offer;
    std::optional<Message> answer;  // none: the program may still show more of its model
  };

  MemberActions send_hello(Ticks now);
  MemberActions on_welcome(const Welcome& welcome, const std::string& epoch, Ticks now);
  MemberActions on_offer(const Offer& offer, Ticks now);
  std::optional<Busy> busy_for(const Offer& offer, Ticks now) const;
  std::optional<Message> considered(const Offer& offer) const;
  MemberActions on_prepare(const Prepare& prepare, Ticks now);
  MemberActions enter(const Verdict& commit);
  MemberActions on_dry_run(const DryRun& question) const;
  MemberActions learn(const KnownDecisions& last);
  MemberActions withdraw();
  // Says Hello again where the gate has lapsed.
  MemberActions check_lapsed(Ticks now);
  void acknowledged(std::uint64_t number, Ticks now);
  std::uint64_t number_sent(Ticks now, bool lapsed);
  std::string unmatched_by(const Plan& plan) const;
  void drop_start_hold();
  Step standing_fence() const;  // kNever: none

  // Constant after construction.
  Identity identity_;  // but for the launch id
  StepGate& gate_;
  const CanCarryOut can_carry_out_;
  const ListTargets list_targets_;  // null: there is nothing to tell

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
  std::string epoch_;              // that it has joined; "" before the first
  std::int64_t epoch_order_ = 0;   // of that
  std::uint64_t incarnation_ = 0;  // of its membership there
  std::string commit_epoch_;       // of the newest commit that it keeps
  std::string lease_epoch_;        // whose acknowledgements renew the lease
  Ticks lease_until_ = Ticks::min();
  std::optional<Step> start_hold_;
  Ticks max_wait_;
  std::optional<PendingOffer> pending_offer_;
  std::optional<Open> open_;
  KnownDecisions last_;          // of the epoch
  std::optional<Verdict> held_;  // the newest commit that it keeps, also of an epoch before
  std::uint64_t numbers_ = 0;
  std::deque<Sent> sent_;  // what an acknowledgement may come for
  std::deque<Applied> entered_;  // in this epoch, and not applied yet: revisions from when on
  Applied newest_applied_;       // of this epoch, as finished_
  Revision finished_;
};

}  // namespace gradmon

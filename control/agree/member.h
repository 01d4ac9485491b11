// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "control/agree/home_sight.h"
#include "control/agree/message.h"
#include "control/agree/step_gate.h"

namespace gradmon {

// Whether this rank can carry a plan out: how many targets it means here, or
// why it cannot. None in the first step is not yet an answer: the question comes
// again, and until then the program may still show more of its model. Must be quick; called on the agent
// thread.
using CanCarryOut = std::function<tl::expected<std::int64_t, std::string>(const Plan&)>;

// What a member wants done. Messages go to the coordinator.
struct MemberActions {
  std::vector<Message> send;
  std::optional<Verdict> write;  // try to write this into the register; answer by on_register
  // See whether the register in the directory, in the store, shows this nonce; answer by on_proof.
  std::optional<std::string> prove;
  std::optional<std::string> prove_in_store;
  std::vector<std::string> warnings;  // for the log

  MemberActions& operator+=(MemberActions other);
};

// The role every rank has in the agreement: promises, then obeys. Pure: called
// by one thread (the agent), with the time as a value; touches the gate alone.
class Member {
 public:
  struct Identity {
    Rank rank;
    std::string process_id;  // author of this member's verdicts
    Hello hello;
    // Dynamic mode: the step after the first waits for the answer to Hello. The
    // gate holds it before the trainer can come there.
    bool holds_start = true;
  };

  Member(Identity identity, StepGate& gate, CanCarryOut can_carry_out, ListTargets list_targets = {});

  // Once the first step has begun, and whenever the way to the coordinator has
  // changed; repeated every 250 ms until answered.
  MemberActions say_hello();
  // No answer can ever come (no network, no directory): goes on alone.
  void give_up(std::string reason);

  MemberActions on_message(const Message& message);
  MemberActions on_register(const tl::expected<Verdict, std::string>& verdict);
  MemberActions on_proof(const tl::expected<void, std::string>& proof, Home home = Home::directory);
  // `elapsed` since the last tick counts at most one second, so that a stopped
  // process does not count its pause. A tick is due every 10 to 50 ms.
  MemberActions tick(Ticks elapsed);

  // What the training thread and the writer have done.
  MemberActions applied();  // asks the gate
  MemberActions finished(Revision revision);
  MemberActions leave(Step last);

  // Something is open: ticks every 10 ms, else every 100.
  bool busy() const { return open_ || start_hold_ || !joined_ || leaving_; }
  bool joined() const { return joined_; }
  bool left_heard() const { return left_heard_; }
  bool replaced() const { return replaced_; }
  // Where the register is kept: known before anything is written into it.
  Home home() const { return last_.home; }
  const std::string& refused() const { return refused_; }
  // What Progress says of the agreement; the rest of it is the caller's.
  Progress progress() const;

 private:
  // A revision that was asked about and is not decided as far as this rank knows.
  struct Open {
    Revision revision;
    Message answer;             // Ready or Reject: a repeated question gets the same
    std::optional<Step> fence;  // none where rejected
    Ticks fence_timeout{};
    Ticks doubt_after{};
    bool wait_on_partition = false;
    bool gave_up = false;
    Ticks stood{};               // how long the trainer has stood at the fence
    std::optional<Ticks> asked;  // when the register was first asked
  };
  // At the start only: the step after the first is held.
  struct StartHold {
    Step fence;
    Ticks stood{};
  };

  MemberActions on_welcome(const Welcome& welcome);
  MemberActions on_prepare(const Prepare& prepare);
  MemberActions on_probe(const Probe& probe) const;
  std::string unmatched_by(const Plan& plan) const;
  MemberActions withdraw();
  MemberActions look_for_homes();
  Decided closed_word() const;
  MemberActions learn(const LastWord& last);
  MemberActions stand(Ticks elapsed);
  MemberActions ask_register(Revision revision);
  void drop_start_hold();
  Step standing_fence() const;  // kNever: none

  // Constant after construction.
  const Identity identity_;
  StepGate& gate_;
  const CanCarryOut can_carry_out_;
  const ListTargets list_targets_;  // null: there is nothing to tell

  Ticks clock_{};
  Ticks last_hello_{};
  Ticks last_left_{};
  std::string nonce_;              // what the register must show
  std::optional<Ticks> last_ask_;  // of the register; none: never
  bool asking_ = false;            // a register attempt is under way
  std::string register_trouble_;   // what the last attempt failed for, said once
  bool joined_ = false;            // Hello is answered
  HomeSight sight_;
  bool said_unseen_ = false;  // that no home shows the nonce
  bool rejoining_ = false;    // closing what was open before this process came back
  bool left_heard_ = false;
  bool replaced_ = false;
  std::optional<Step> leaving_;
  std::string refused_;
  std::optional<StartHold> start_hold_;
  std::optional<Open> open_;
  LastWord last_;
  Applied newest_applied_;
  Revision finished_;
  Revision missed_;
};

}  // namespace gradmon

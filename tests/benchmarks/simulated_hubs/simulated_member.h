// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "control/agree/member.h"
#include "control/wire/messages.h"
#include "tests/benchmarks/simulated_hubs/simulated_hubs_protocol.h"

namespace gradmon {

// A rank as its hub sees it: the real Member and StepGate, and a trainer that jumps to the
// effective step of a plan as soon as it hears the verdict. One thread.
class SimulatedMember {
 public:
  using Say = std::function<void(Bundle)>;

  SimulatedMember(const SimulatedHubsArguments& arguments, Rank rank, Say say);
  SimulatedMember(const SimulatedMember&) = delete;
  SimulatedMember& operator=(const SimulatedMember&) = delete;

  // Sends Hello, like an agent that has just connected to its hub.
  void connect();
  // Handles a bundle. Returns the revision whose verdict is new to this member; nullopt: none.
  std::optional<Revision> hear(const Bundle& bundle);
  void tick();
  void send_progress();

 private:
  void perform(MemberActions actions);
  void say(Message message);
  void go_on();

  // Constant after construction.
  const Rank rank_;
  const std::string process_id_;
  const Say say_;

  StepGate gate_;
  Member member_;
  Step step_;
  Revision heard_;
};

}  // namespace gradmon

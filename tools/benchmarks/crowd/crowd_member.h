// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "control/agree/member.h"
#include "control/wire/messages.h"
#include "tools/benchmarks/crowd/crowd_protocol.h"

namespace gradmon {

// A rank as its hub sees it: the real Member and StepGate, and a trainer that goes
// to the step at which a plan takes effect as soon as it hears of it. One thread.
class CrowdMember {
 public:
  using Say = std::function<void(Bundle)>;

  CrowdMember(const CrowdArguments& arguments, Rank rank, Say say);
  CrowdMember(const CrowdMember&) = delete;
  CrowdMember& operator=(const CrowdMember&) = delete;

  // As an agent that has just reached its hub: says Hello.
  void connect();
  // The revision whose verdict is new to it, where there is one.
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

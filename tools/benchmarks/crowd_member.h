// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "control/agree/member.h"
#include "tools/benchmarks/crowd_protocol.h"

namespace gradmon {

// One member of a job as rank 0 sees it: the real Member and StepGate, letters
// in and out, and a trainer that goes to the step at which a plan takes effect
// as soon as it hears of it. One thread.
class CrowdMember {
 public:
  using Send = std::function<void(const Letter&)>;

  CrowdMember(const CrowdArguments& arguments, Rank rank, Send send);

  Rank rank() const { return rank_; }
  void begin();
  // The newest revision whose verdict it has heard of by this letter, where there is one.
  std::optional<Revision> on_letter(const Letter& letter);
  void tick(Ticks elapsed);
  void say_progress();

 private:
  void perform(MemberActions actions);
  void go_on();

  const Rank rank_;
  const std::string process_id_;
  const Send send_;
  StepGate gate_;
  Member member_;
  std::string epoch_;
  std::uint64_t incarnation_ = 0;
  Step step_;
  Revision heard_;
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "control/hub/relay.h"
#include "tools/benchmarks/crowd/crowd_member.h"

namespace gradmon {

// The hub of one host and the ranks there: the real Relay, with its real connection to
// the lead hub, and members in place of ranks. One thread.
class CrowdHub {
 public:
  static constexpr std::chrono::milliseconds kTick{100};

  using OnVerdict = std::function<void(Revision)>;  // one member has heard of it

  CrowdHub(const CrowdArguments& arguments, int number, OnVerdict on_verdict);

  void add_to(std::vector<pollfd>& polled) const { relay_.add_to(polled); }
  void turn();
  // Whether what waits to be sent should not wait for the next tick.
  bool has_to_say() const { return relay_.longest_wait(kTick) < kTick; }
  // Its members say Hello.
  void connect();
  // Each kTick; each member says its Progress once in ten of them.
  void tick(int turn);

  // Messages passed on either way, but for Progress and its acknowledgement, as the
  // lead's and this hub's connection carries them: one for several ranks.
  std::uint64_t messages() const { return messages_; }

 private:
  void say(Bundle bundle);
  void hear(const Bundle& bundle);

  const OnVerdict on_verdict_;
  bool spoke_this_turn_ = false;
  std::uint64_t messages_ = 0;
  Relay relay_;
  std::vector<std::unique_ptr<CrowdMember>> members_;
};

}  // namespace gradmon

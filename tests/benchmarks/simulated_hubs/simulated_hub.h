// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "control/hub/relay.h"
#include "tests/benchmarks/simulated_hubs/simulated_member.h"

namespace gradmon {

// The hub of one host and its ranks: the real Relay, with its real connection to the lead
// hub, and members in place of ranks. One thread.
class SimulatedHub {
 public:
  static constexpr std::chrono::milliseconds kTick{100};

  using OnVerdict = std::function<void(Revision)>;  // called for each member that hears the verdict

  SimulatedHub(const SimulatedHubsArguments& arguments, int number, OnVerdict on_verdict);

  void add_to(std::vector<pollfd>& polled) const { relay_.add_to(polled); }
  void turn();
  // Whether messages must be sent before the next tick.
  bool has_to_say() const { return relay_.longest_wait(kTick) < kTick; }
  // All members send Hello.
  void connect();
  // Call it every kTick; each member sends Progress in one of ten ticks.
  void tick(int turn);

  // The number of messages in both directions on the connection to the lead hub, without
  // Progress and ProgressAck. A message for several ranks counts once.
  std::uint64_t messages() const { return messages_; }

 private:
  void say(Bundle bundle);
  void hear(const Bundle& bundle);

  const OnVerdict on_verdict_;
  bool spoke_this_turn_ = false;
  std::uint64_t messages_ = 0;
  Relay relay_;
  std::vector<std::unique_ptr<SimulatedMember>> members_;
};

}  // namespace gradmon

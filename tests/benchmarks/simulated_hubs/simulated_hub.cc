// SPDX-License-Identifier: Apache-2.0
#include "tests/benchmarks/simulated_hubs/simulated_hub.h"

#include <chrono>
#include <utility>

namespace gradmon {
namespace {

Introduction introduction_of(const SimulatedHubsArguments& arguments) {
  Introduction said;
  said.launch_id = arguments.launch_id;
  said.rank = Rank{arguments.first_rank};
  said.world_size = arguments.world_size;
  said.endpoint = arguments.endpoint;
  said.keys = arguments.keys;
  return said;
}

bool is_counted(const Message& message) {
  return !std::holds_alternative<Progress>(message) && !std::holds_alternative<ProgressAck>(message);
}

}  // namespace

SimulatedHub::SimulatedHub(const SimulatedHubsArguments& arguments, int number, OnVerdict on_verdict)
    : on_verdict_(std::move(on_verdict)),
      relay_(introduction_of(arguments),
             {std::make_shared<Mailbox>(),
              [this](const Bundle& bundle) { hear(bundle); },
              [](const std::string&, const std::string&) {},
              {},
              [](const StoreNotes&) {},
              [ranks = static_cast<std::size_t>(arguments.ranks_per_hub)] { return ranks; }}) {
  const int first = arguments.first_rank + number * arguments.ranks_per_hub;
  for (int i = 0; i < arguments.ranks_per_hub; ++i)
    members_.push_back(std::make_unique<SimulatedMember>(arguments, Rank{first + i},
                                                         [this](Bundle bundle) { say(std::move(bundle)); }));
}

void SimulatedHub::say(Bundle bundle) {
  // All bundles of one turn go out as one message.
  if (is_counted(bundle.message) && !std::exchange(spoke_this_turn_, true)) messages_ += 1;
  relay_.pass_on(std::move(bundle));
}

void SimulatedHub::hear(const Bundle& bundle) {
  messages_ += is_counted(bundle.message) ? 1 : 0;
  for (const auto& member : members_) {
    if (const auto revision = member->hear(bundle)) on_verdict_(*revision);
  }
}

void SimulatedHub::turn() {
  relay_.turn(std::chrono::steady_clock::now());
  spoke_this_turn_ = false;
}

void SimulatedHub::connect() {
  for (const auto& member : members_) member->connect();
}

// The ranks of a host report in the same tick, as agents do; hosts report in different ticks.
void SimulatedHub::tick(int turn) {
  for (const auto& member : members_) {
    member->tick();
    if (turn % 10 == 0) member->send_progress();
  }
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "tests/benchmarks/simulated_hubs/simulated_member.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "control/host/boot_clock.h"
#include "control/host/process_identity.h"

namespace gradmon {
namespace {

Member::Identity identity_of(const SimulatedHubsArguments& arguments, Rank rank,
                             const std::string& process_id) {
  Member::Identity identity;
  identity.rank = rank;
  identity.hello.launch_id = arguments.launch_id;
  identity.hello.world_size = arguments.world_size;
  identity.hello.host = host_name();
  identity.hello.pid = getpid();
  identity.hello.process_id = process_id;
  return identity;
}

const KnownDecisions* last_word_in(const Message& message) {
  if (const auto* decided = std::get_if<Decided>(&message)) return &decided->last;
  if (const auto* prepare = std::get_if<Prepare>(&message)) return &prepare->last;
  return nullptr;
}

}  // namespace

SimulatedMember::SimulatedMember(const SimulatedHubsArguments& arguments, Rank rank, Say say)
    : rank_(rank),
      process_id_(random_hex(16)),
      say_(std::move(say)),
      gate_(Step{0}),
      member_(identity_of(arguments, rank, process_id_), gate_, [](const Plan&) { return 1; }) {
  gate_.try_begin(step_);
  perform(member_.start(boot_now()));
}

void SimulatedMember::connect() { perform(member_.connected(boot_now())); }

std::optional<Revision> SimulatedMember::hear(const Bundle& bundle) {
  const auto own = std::find_if(bundle.to.begin(), bundle.to.end(),
                                [&](const auto& to) { return to.first == rank_.value; });
  if (own == bundle.to.end()) return {};
  const Envelope envelope{bundle.epoch, rank_, own->second, bundle.message};
  perform(member_.on_envelope(envelope, boot_now()));
  const KnownDecisions* last = last_word_in(envelope.message);
  if (last == nullptr || !last->commit || last->commit->revision <= heard_) return {};
  heard_ = last->commit->revision;
  step_ = last->commit->effective;
  go_on();
  return heard_;
}

void SimulatedMember::tick() { perform(member_.tick(boot_now())); }

void SimulatedMember::send_progress() {
  if (!member_.joined()) return;
  const Ticks now = boot_now();
  Progress progress = member_.progress(now);
  progress.step_ms = 1;
  say(member_.report(std::move(progress), now));
}

void SimulatedMember::perform(MemberActions actions) {
  for (Message& message : actions.send) say(std::move(message));
}

void SimulatedMember::say(Message message) { say_(bundle_of(member_.to_coordinator(std::move(message)))); }

void SimulatedMember::go_on() {
  if (!gate_.try_begin(step_)) gate_.begin(step_, boot_now());
  perform(member_.applied());
}

}  // namespace gradmon

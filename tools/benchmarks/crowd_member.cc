// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/crowd_member.h"

#include <unistd.h>

#include <utility>

#include "control/net/process_identity.h"

namespace gradmon {
namespace {

Member::Identity identity_of(const CrowdArguments& arguments, Rank rank, const std::string& process_id) {
  Member::Identity identity;
  identity.rank = rank;
  identity.process_id = process_id;
  identity.holds_start = false;
  identity.hello.launcher_id = arguments.launcher_id;
  identity.hello.world_size = arguments.world_size;
  identity.hello.host = host_name();
  identity.hello.pid = getpid();
  identity.hello.process_start = process_start_of(getpid());
  identity.hello.process_id = process_id;
  return identity;
}

const LastWord* last_word_in(const Message& message) {
  if (const auto* decided = std::get_if<Decided>(&message)) return &decided->last;
  if (const auto* prepare = std::get_if<Prepare>(&message)) return &prepare->last;
  return nullptr;
}

}  // namespace

CrowdMember::CrowdMember(const CrowdArguments& arguments, Rank rank, Send send)
    : rank_(rank),
      process_id_(random_hex(16)),
      send_(std::move(send)),
      gate_(Step{0}),
      member_(identity_of(arguments, rank, process_id_), gate_, [](const Plan&) { return 1; }) {}

void CrowdMember::begin() {
  gate_.try_begin(step_);
  perform(member_.say_hello());
}

std::optional<Revision> CrowdMember::on_letter(const Letter& letter) {
  if (const auto* welcome = std::get_if<Welcome>(&letter.message)) {
    if (welcome->process_id != process_id_ || member_.joined()) return {};
    if (welcome->refused.empty()) {
      epoch_ = letter.epoch;
      incarnation_ = letter.incarnation;
    }
  } else if (letter.epoch != epoch_ || letter.incarnation != incarnation_) {
    return {};
  }
  perform(member_.on_message(letter.message));
  const LastWord* last = last_word_in(letter.message);
  if (last == nullptr || !last->commit || last->commit->revision <= heard_) return {};
  heard_ = last->commit->revision;
  step_ = last->commit->effective;
  go_on();
  return heard_;
}

void CrowdMember::tick(Ticks elapsed) { perform(member_.tick(elapsed)); }

void CrowdMember::say_progress() {
  if (!member_.joined()) return;
  Progress progress = member_.progress();
  progress.step_ms = 1;
  MemberActions actions;
  actions.send.emplace_back(std::move(progress));
  perform(std::move(actions));
}

void CrowdMember::perform(MemberActions actions) {
  for (Message& message : actions.send) {
    const bool hello = std::holds_alternative<Hello>(message);
    send_(Letter{hello ? "" : epoch_, rank_, hello ? 0 : incarnation_, std::move(message)});
  }
  if (actions.prove) perform(member_.on_proof({}));
}

void CrowdMember::go_on() {
  if (!gate_.try_begin(step_)) gate_.begin(step_);
  perform(member_.applied());
}

}  // namespace gradmon

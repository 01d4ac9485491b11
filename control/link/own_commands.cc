// SPDX-License-Identifier: Apache-2.0
#include "control/link/own_commands.h"

#include <algorithm>
#include <utility>

#include "control/log.h"

namespace gradmon {
namespace {

constexpr std::chrono::seconds kAskAgain{1};
constexpr std::chrono::seconds kGiveUp{60};
constexpr std::size_t kMost = 100;

}  // namespace

void OwnCommands::add(Command command) {
  if (waiting_.size() == kMost) {
    log_warn("requests of the program are ignored: " + waiting_.front().command.request_id);
    waiting_.erase(waiting_.begin());
  }
  waiting_.push_back({std::move(command), {}, {}});
}

std::vector<Command> OwnCommands::due(Clock::time_point now) {
  const auto kept = std::remove_if(waiting_.begin(), waiting_.end(), [&](const Waiting& each) {
    const bool late = each.first && now - *each.first > kGiveUp;
    if (late) log_warn("rank 0 has not answered a request of the program: " + each.command.request_id);
    return late;
  });
  waiting_.erase(kept, waiting_.end());
  std::vector<Command> commands;
  for (Waiting& each : waiting_) {
    if (now < each.next) continue;
    if (!each.first) each.first = now;
    each.next = now + kAskAgain;
    commands.push_back(each.command);
  }
  return commands;
}

void OwnCommands::answered(const std::string& request_id, const CommandReply& reply) {
  const auto kept = std::remove_if(waiting_.begin(), waiting_.end(), [&](const Waiting& each) {
    return each.command.request_id == request_id;
  });
  if (kept == waiting_.end()) return;
  waiting_.erase(kept, waiting_.end());
  if (reply.outcome != CommandOutcome::done) {
    log_warn("a request of the program was refused (" + request_id + "): " + reply.message);
  } else if (!reply.message.empty()) {
    log_info("what the program asked for (" + request_id + "): " + reply.message);
  }
}

}  // namespace gradmon

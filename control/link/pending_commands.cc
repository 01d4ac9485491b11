// SPDX-License-Identifier: Apache-2.0
#include "control/link/pending_commands.h"

#include <algorithm>
#include <utility>

#include "control/log.h"

namespace gradmon {
namespace {

constexpr std::chrono::seconds kSendAgain{1};
constexpr std::chrono::seconds kMaxAge{60};
constexpr std::size_t kMaxCount = 100;

}  // namespace

void PendingCommands::add(Command command, Clock::time_point now) {
  if (waiting_.size() == kMaxCount) {
    log_warn("more than " + std::to_string(kMaxCount) +
             " commands of the program are unanswered: dropped command " +
             waiting_.front().command.request_id);
    waiting_.erase(waiting_.begin());
  }
  waiting_.push_back({std::move(command), now, {}});
}

void PendingCommands::drop_expired(Clock::time_point now) {
  const auto kept = std::remove_if(waiting_.begin(), waiting_.end(), [&](const Waiting& each) {
    const bool expired = now - each.added > kMaxAge;
    if (expired)
      log_warn("no answer to the program's command " + each.command.request_id + " within " +
               std::to_string(kMaxAge.count()) + " s: dropped");
    return expired;
  });
  waiting_.erase(kept, waiting_.end());
}

std::vector<Command> PendingCommands::due(Clock::time_point now) {
  std::vector<Command> commands;
  for (Waiting& each : waiting_) {
    if (now < each.next) continue;
    each.next = now + kSendAgain;
    commands.push_back(each.command);
  }
  return commands;
}

void PendingCommands::answered(const std::string& request_id, const CommandReply& reply) {
  const auto kept = std::remove_if(waiting_.begin(), waiting_.end(), [&](const Waiting& each) {
    return each.command.request_id == request_id;
  });
  if (kept == waiting_.end()) return;
  waiting_.erase(kept, waiting_.end());
  if (reply.outcome != CommandOutcome::done) {
    log_warn("the program's command " + request_id + " was refused: " + reply.message);
  } else if (!reply.message.empty()) {
    log_info("the program's command " + request_id + ": " + reply.message);
  }
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/ask/matching_targets.h"

namespace gradmon {
namespace {

MatchingTargets ask_matching(const Command& command, const AskJob& ask) {
  const auto reply = ask(command, kAnswerTime);
  return reply ? matching_targets(*reply) : MatchingTargets();
}

}  // namespace

MatchingTargets matching_targets(const CommandReply& tried) {
  MatchingTargets matching;
  for (const DryRunResult::Answer& answer : tried.rank_answers) {
    if (answer.known && answer.objection.empty()) matching[answer.rank.value] = answer.targets.counts.watched;
  }
  return matching;
}

MatchingTargets matching_with(const std::vector<std::pair<std::string, std::string>>& edits,
                              const AskJob& ask) {
  Command command = question(CommandVerb::dry_run_targets);
  command.edits = edits;
  return ask_matching(command, ask);
}

// Ranks count matching targets only in a dry run, so this is a dry run of the plan in force.
MatchingTargets matching_now(const AskJob& ask) {
  const auto config = ask(question(CommandVerb::config), kAnswerTime);
  if (!config || config->config_text.empty()) return {};
  Command command = question(CommandVerb::dry_run_targets);
  command.config_text = config->config_text;
  return ask_matching(command, ask);
}

std::string matching_text(std::int64_t count) {
  return std::to_string(count) + (count == 1 ? " target matches" : " targets match");
}

}  // namespace gradmon

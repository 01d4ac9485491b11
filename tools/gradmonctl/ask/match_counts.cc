// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/ask/match_counts.h"

namespace gradmon {
namespace {

MatchCounts ask_matching(const Command& command, const AskJob& ask) {
  const auto reply = ask(command, kAnswerTime);
  return reply ? match_counts(*reply) : MatchCounts();
}

}  // namespace

MatchCounts match_counts(const CommandReply& tried) {
  MatchCounts matching;
  for (const DryRunResult::Answer& answer : tried.rank_answers) {
    if (answer.known && answer.objection.empty()) matching[answer.rank.value] = answer.targets.counts.watched;
  }
  return matching;
}

MatchCounts matching_with(const std::vector<std::pair<std::string, std::string>>& edits, const AskJob& ask) {
  Command command = make_command(CommandVerb::dry_run_targets);
  command.edits = edits;
  return ask_matching(command, ask);
}

// Ranks count matching targets only in a dry run, so this makes a dry run of the plan in force.
MatchCounts matching_now(const AskJob& ask) {
  const auto config = ask(make_command(CommandVerb::config), kAnswerTime);
  if (!config || config->config_text.empty()) return {};
  Command command = make_command(CommandVerb::dry_run_targets);
  command.config_text = config->config_text;
  return ask_matching(command, ask);
}

std::string matching_text(std::int64_t count) {
  return std::to_string(count) + (count == 1 ? " target matches" : " targets match");
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/dry_run.h"

#include <utility>
#include <vector>

#include "control/config/json_edit.h"
#include "tools/gradmonctl/ask/match_counts.h"
#include "tools/gradmonctl/cli/printable.h"
#include "tools/gradmonctl/cli/rank_ranges.h"
#include "tools/gradmonctl/config/config_text.h"
#include "tools/gradmonctl/config/line_diff.h"

namespace gradmon {
namespace {

void show_change(const std::string& file, const std::string& before, const std::string& after,
                 const Console& console) {
  const std::string lines = line_diff(before, after);
  console.out << printable(file) << (lines.empty() ? ": nothing would change\n" : "\n" + lines);
}

std::string answer_text(const DryRunResult::Answer& answer, const MatchCounts& matching) {
  if (!answer.known) return "no answer";
  if (!answer.objection.empty()) return "rejects it: " + printable_lines(answer.objection, "; ");
  const auto found = matching.find(answer.rank.value);
  return found == matching.end() ? "did not report the number of matching targets"
                                 : matching_text(found->second);
}

// One line for all ranks with the same answer, in the order of the lowest rank.
void show_answers(const std::vector<DryRunResult::Answer>& answers, const MatchCounts& matching,
                  const Console& console) {
  std::vector<std::pair<int, std::string>> texts;
  for (const DryRunResult::Answer& answer : answers)
    texts.emplace_back(answer.rank.value, printable(answer_text(answer, matching)));
  for (const std::string& line : grouped_by_text(texts)) console.out << line << '\n';
}

}  // namespace

void report_warnings(const Status& status, const Console& console) {
  for (const std::string& warning : status.warnings) console.err << "warning: " << printable(warning) << '\n';
}

int report_dry_run(const CommandReply& reply, const Console& console) {
  bool rejected = false;
  bool unknown = false;
  std::int64_t matches = 0;
  for (const DryRunResult::Answer& answer : reply.rank_answers) {
    rejected = rejected || !answer.objection.empty();
    unknown = unknown || !answer.known;
    matches += answer.matches;
  }
  const std::string now = reply.status->state == "on" ? "" : " once it is switched on";
  if (rejected || (matches == 0 && !unknown)) {
    console.err << "gradmonctl: the job would reject it" << now
                << (rejected ? "\n" : ": no target matches on any rank\n");
    return kExitFailed;
  }
  if (!now.empty()) console.err << "gradmonctl: nothing is collected: dynamic_on is false\n";
  return unknown ? kExitPartial : kExitDone;
}

int dry_run(const ChangeRequest& request, const AskJob& ask, const Console& console) {
  Command command = make_command(CommandVerb::dry_run);
  command.edits = request.command.edits;
  command.force = request.command.force;
  const auto reply = ask(command, kAnswerTime);
  if (const int code = report_failure(reply, console); code != kExitDone) return code;
  if (!reply->status || reply->config_text.empty()) {
    console.err << "gradmonctl: the job does not support dry runs\n";
    return kExitFailed;
  }
  report_warnings(*reply->status, console);
  show_change(reply->status->config_path, reply->config_before, reply->config_text, console);
  show_answers(reply->rank_answers, matching_with(request.command.edits, ask), console);
  return report_dry_run(*reply, console);
}

int dry_run_of_file(const ChangeRequest& request, const Console& console) {
  const auto before = valid_config_text(request.file, {console.err, console.err});
  if (!before) return before.error();
  const auto after = set_values(*before, request.command.edits);
  if (!after) {
    console.err << "gradmonctl: " << printable(after.error()) << '\n';
    return kExitInvalidConfig;
  }
  show_change(request.file, *before, *after, console);
  if (const int code = report_config_problems(*after, request.file, console); code != kExitDone) return code;
  console.err << "gradmonctl: no job was asked which targets match\n";
  return kExitDone;
}

}  // namespace gradmon

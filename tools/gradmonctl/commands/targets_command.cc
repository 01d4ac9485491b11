// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/commands.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <sstream>

#include "control/agree/target_status.h"
#include "tools/gradmonctl/cli/command_line.h"
#include "tools/gradmonctl/cli/job.h"
#include "tools/gradmonctl/cli/json_rule.h"
#include "tools/gradmonctl/cli/listing.h"
#include "tools/gradmonctl/cli/printable.h"
#include "tools/gradmonctl/commands/config_text.h"

namespace gradmon {
namespace {

enum class TargetsOf : std::uint8_t { plan_in_force, plan_tried };

std::string counted(std::int64_t count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

// The series of a plan in a dry run are unknown.
std::string summary(const TargetCounts& counts, std::optional<std::int64_t> matching, TargetsOf plan) {
  std::string text = matching ? matching_text(*matching) : "";
  if (plan == TargetsOf::plan_in_force) {
    const std::string series = std::to_string(counts.watched) + " series";
    text += (text.empty() ? "" : ", ") + series;
  }
  if (counts.silent > 0) text += ", " + std::to_string(counts.silent) + " silent";
  if (counts.unmatched > 0)
    text += ", " + counted(counts.unmatched, "name") + " of the config without a match";
  return text + '\n';
}

std::string silence_text(const TargetStatus& target) {
  if (!target.silent()) return "";
  return "silent for " + counted(target.silent_steps, "collected step") +
         (target.why.empty() ? "" : ": " + target.why);
}

std::string targets_table(const std::vector<TargetStatus>& targets) {
  if (targets.empty()) return "";
  TextTable table({"<  kind", "<target", "last step", "<when", "<"});
  for (const TargetStatus& target : targets) {
    table.add({"  " + (target.kind.empty() ? "-" : target.kind), target.name,
               target.last_step < 0 ? "-" : std::to_string(target.last_step),
               target.last_at == 0 ? "-" : utc_text(target.last_at), silence_text(target)});
  }
  return table.text();
}

std::string answer_text(const DryRunResult::Answer& answer, const MatchCounts& matching, TargetsOf plan) {
  if (!answer.known) return "no answer\n";
  if (!answer.objection.empty()) return "rejects it: " + printable_lines(answer.objection, "; ") + '\n';
  const TargetList& list = answer.targets;
  const auto found = matching.find(answer.rank.value);
  const auto count = found == matching.end() ? std::nullopt : std::optional(found->second);
  std::string text = summary(list.counts, count, plan);
  for (const std::string& line : list.attached) text += "  " + printable(line) + '\n';
  for (const UnmatchedTarget& entry : list.unmatched) text += "  " + printable(describe(entry)) + '\n';
  text += targets_table(list.targets);
  if (!list.targets.empty() && list.left_out > 0)
    text += "  and " + std::to_string(list.left_out) + " more\n";
  return text;
}

OrderedJson to_json(const UnmatchedTarget& entry) {
  return {{"pattern", entry.pattern}, {"nearest", entry.nearest}, {"error", text_or_null(entry.error)}};
}

OrderedJson to_json(const TargetStatus& target) {
  return {{"kind", text_or_null(target.kind)},           {"name", target.name},
          {"last_step", step_or_null(target.last_step)}, {"last_at", time_or_null(target.last_at)},
          {"silent_steps", target.silent_steps},         {"why", text_or_null(target.why)}};
}

OrderedJson to_json(const DryRunResult::Answer& answer, const MatchCounts& matching) {
  const auto found = matching.find(answer.rank.value);
  const TargetList& list = answer.targets;
  OrderedJson unmatched = OrderedJson::array();
  for (const UnmatchedTarget& entry : list.unmatched) unmatched.push_back(to_json(entry));
  OrderedJson targets = OrderedJson::array();
  for (const TargetStatus& target : list.targets) targets.push_back(to_json(target));
  return {{"rank", answer.rank.value},
          {"answered", answer.known},
          {"objection", text_or_null(answer.objection)},
          {"matching", found == matching.end() ? OrderedJson(nullptr) : OrderedJson(found->second)},
          {"watched", list.counts.watched},
          {"silent", list.counts.silent},
          {"without_match", list.counts.unmatched},
          {"attached", list.attached},
          {"unmatched", std::move(unmatched)},
          {"targets", std::move(targets)},
          {"left_out", list.left_out}};
}

// Readable; each line is an entry of the listing. Ranks with the same answer share an entry. Rank 0 lists all
// its series; the other ranks list only silent or unmatched entries.
Listing targets_listing(const std::vector<DryRunResult::Answer>& answers, const MatchCounts& matching,
                        TargetsOf plan) {
  std::vector<std::pair<int, std::string>> texts;
  for (const DryRunResult::Answer& answer : answers)
    texts.emplace_back(answer.rank.value, answer_text(answer, matching, plan));
  Listing listing;
  listing.noun = "line";
  for (const std::string& text : grouped_by_text(texts)) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) listing.entries.push_back(line);
  }
  return listing;
}

// JSON: "matching" counts targets (job.h); "watched" and "silent" count series.
std::string targets_json(const std::vector<DryRunResult::Answer>& answers, const MatchCounts& matching,
                         JsonLayout layout) {
  OrderedJson ranks = OrderedJson::array();
  for (const DryRunResult::Answer& answer : answers) ranks.push_back(to_json(answer, matching));
  return json_text({{"schema_version", kJsonSchemaVersion}, {"ranks", std::move(ranks)}}, layout);
}

tl::expected<Command, int> to_command(const TargetsRequest& request, const Console& console) {
  Command command = make_command(request.dry_run ? CommandVerb::dry_run_targets : CommandVerb::targets);
  command.edits = request.edits;
  if (request.file.empty()) return command;
  auto text = valid_config_text(request.file, {console.err, console.err});
  if (!text) return tl::make_unexpected(text.error());
  command.config_text = std::move(*text);
  return command;
}

int end_of_list(const CommandReply& reply) {
  for (const DryRunResult::Answer& answer : reply.rank_answers) {
    if (!answer.known) return kExitPartial;
  }
  return kExitDone;
}

}  // namespace

int targets_command(const TargetsRequest& request, const AskJob& ask, const Console& console) {
  const auto command = to_command(request, console);
  if (!command) return command.error();
  const auto reply = ask(*command, kAnswerTime);
  if (const int code = report_failure(reply, console); code != kExitDone) return code;
  if (!reply->status || reply->rank_answers.empty()) {
    console.err << "gradmonctl: the job's answer has no targets\n";
    return kExitFailed;
  }
  if (request.dry_run) {
    report_warnings(*reply->status, console);
  } else if (reply->status->state != "on") {
    console.err << "gradmonctl: nothing is collected"
                << (reply->status->reason.empty() ? "" : ": " + printable_lines(reply->status->reason, "; "))
                << '\n';
  }
  const bool runs = !request.dry_run && reply->status->state == "on";
  const MatchCounts matching = request.dry_run ? match_counts(*reply)
                               : runs          ? matching_now(ask)
                                               : MatchCounts();
  const auto plan = request.dry_run ? TargetsOf::plan_tried : TargetsOf::plan_in_force;
  const auto screen = request.all ? std::nullopt : console.screen;
  console.out << (request.json ? targets_json(reply->rank_answers, matching, JsonLayout::indented)
                               : fit_to_screen(screen, targets_listing(reply->rank_answers, matching, plan)));
  return request.dry_run ? report_dry_run(*reply, console) : end_of_list(*reply);
}

namespace {}  // namespace

Subcommand targets_subcommand() {
  const auto request = std::make_shared<TargetsRequest>();
  const auto words = std::make_shared<std::vector<std::string>>();  // KEY=VALUE
  Argument edits =
      edit_words(*words, "with --dry-run: the config with these keys set, as\n`gradmonctl set` sets them");
  edits.needs = "--dry-run";
  Argument file{"--config", &request->file, "with --dry-run: this file instead of the job's config", "FILE"};
  file.needs = "--dry-run";
  return {request,
          "targets [--all] [--json] [--dry-run [KEY=VALUE...] [--config FILE]]",
          "Show what each rank watches, what matches nothing and what does not fire",
          with_job_options({list_all(request->all),
                            {"--json", &request->json, "one JSON object"},
                            {"--dry-run", &request->dry_run,
                             "what would be watched under another config; changes nothing"},
                            edits,
                            file},
                           request->selector),
          [request](const Console& console) {
            return with_job(request->selector, console,
                            [&](const AskJob& ask) { return targets_command(*request, ask, console); });
          },
          [request, words] { return parse_edits(*words, request->edits); }};
}

}  // namespace gradmon

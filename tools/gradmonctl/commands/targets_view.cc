// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/targets_view.h"

#include <optional>
#include <sstream>
#include <utility>

#include "tools/gradmonctl/show/printable.h"
#include "tools/gradmonctl/show/rank_ranges.h"
#include "tools/gradmonctl/show/text_table.h"
#include "tools/gradmonctl/show/time_text.h"

namespace gradmon {
namespace {

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

std::string unmatched_text(const UnmatchedTarget& entry) {
  std::string text = "  \"" + printable(entry.pattern) + "\" matches nothing";
  if (!entry.error.empty()) return text + ": " + printable(entry.error) + '\n';
  for (std::size_t i = 0; i < entry.nearest.size(); ++i)
    text += (i == 0 ? " (nearest: " : ", ") + printable(entry.nearest[i]);
  return text + (entry.nearest.empty() ? "\n" : ")\n");
}

std::string silence_text(const TargetStatus& target) {
  if (!target.silent()) return "";
  return "silent for " + counted(target.silent_steps, "collected step") +
         (target.why.empty() ? "" : ": " + target.why);
}

std::string table_of(const std::vector<TargetStatus>& targets) {
  if (targets.empty()) return "";
  const auto left = TextTable::Align::left;
  TextTable table({{"  kind", left}, {"target", left}, {"last step"}, {"when", left}, {"", left}});
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
  for (const UnmatchedTarget& entry : list.unmatched) text += unmatched_text(entry);
  text += table_of(list.targets);
  if (!list.targets.empty() && list.left_out > 0)
    text += "  and " + std::to_string(list.left_out) + " more\n";
  return text;
}

OrderedJson json_of(const UnmatchedTarget& entry) {
  return {{"pattern", entry.pattern}, {"nearest", entry.nearest}, {"error", text_or_null(entry.error)}};
}

OrderedJson json_of(const TargetStatus& target) {
  return {{"kind", text_or_null(target.kind)},           {"name", target.name},
          {"last_step", step_or_null(target.last_step)}, {"last_at", time_or_null(target.last_at)},
          {"silent_steps", target.silent_steps},         {"why", text_or_null(target.why)}};
}

OrderedJson json_of(const DryRunResult::Answer& answer, const MatchCounts& matching) {
  const auto found = matching.find(answer.rank.value);
  const TargetList& list = answer.targets;
  OrderedJson unmatched = OrderedJson::array();
  for (const UnmatchedTarget& entry : list.unmatched) unmatched.push_back(json_of(entry));
  OrderedJson targets = OrderedJson::array();
  for (const TargetStatus& target : list.targets) targets.push_back(json_of(target));
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

}  // namespace

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

std::string targets_json(const std::vector<DryRunResult::Answer>& answers, const MatchCounts& matching,
                         JsonLayout layout) {
  OrderedJson ranks = OrderedJson::array();
  for (const DryRunResult::Answer& answer : answers) ranks.push_back(json_of(answer, matching));
  return json_text({{"schema_version", kJsonSchemaVersion}, {"ranks", std::move(ranks)}}, layout);
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/targets_json.h"

#include <utility>

namespace gradmon {
namespace {

OrderedJson json_of(const UnmatchedTarget& entry) {
  return {{"pattern", entry.pattern}, {"nearest", entry.nearest}, {"error", text_or_null(entry.error)}};
}

OrderedJson json_of(const TargetStatus& target) {
  return {{"kind", text_or_null(target.kind)},           {"name", target.name},
          {"last_step", step_or_null(target.last_step)}, {"last_at", time_or_null(target.last_at)},
          {"silent_steps", target.silent_steps},         {"why", text_or_null(target.why)}};
}

OrderedJson json_of(const ProbeResult::Answer& answer, const MatchingTargets& matching) {
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
          {"unmatched", std::move(unmatched)},
          {"targets", std::move(targets)},
          {"left_out", list.left_out}};
}

}  // namespace

std::string targets_json(const std::vector<ProbeResult::Answer>& answers, const MatchingTargets& matching,
                         JsonLayout layout) {
  OrderedJson ranks = OrderedJson::array();
  for (const ProbeResult::Answer& answer : answers) ranks.push_back(json_of(answer, matching));
  return json_text({{"schema_version", kJsonSchemaVersion}, {"ranks", std::move(ranks)}}, layout);
}

}  // namespace gradmon

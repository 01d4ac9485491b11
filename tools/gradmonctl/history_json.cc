// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/history_json.h"

namespace gradmon {
namespace {

OrderedJson json_of(const HistoryEntry& entry) {
  OrderedJson applied = OrderedJson::object();
  for (const auto& [rank, step] : entry.applied) applied[std::to_string(rank)] = step;
  return {
      {"revision", entry.revision == Revision{} ? OrderedJson(nullptr) : OrderedJson(entry.revision.value)},
      {"cause", entry.cause},
      {"by", text_or_null(entry.by)},
      {"on", entry.on},
      {"verdict", text_or_null(entry.verdict)},
      {"reason", text_or_null(entry.reason)},
      {"proposed_at", time_or_null(entry.proposed_at)},
      {"effective_step", step_or_null(entry.effective_step)},
      {"applied", std::move(applied)},
      {"finished_step", step_or_null(entry.finished_step)}};
}

}  // namespace

std::string history_json(const std::vector<HistoryEntry>& history, JsonLayout layout) {
  OrderedJson revisions = OrderedJson::array();
  for (const HistoryEntry& entry : history) revisions.push_back(json_of(entry));
  return json_text({{"schema_version", kJsonSchemaVersion}, {"revisions", std::move(revisions)}}, layout);
}

}  // namespace gradmon

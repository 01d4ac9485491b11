// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/history_view.h"

#include <algorithm>

#include "tools/gradmonctl/cli/printable.h"
#include "tools/gradmonctl/cli/text_table.h"
#include "tools/gradmonctl/cli/time_text.h"

namespace gradmon {
namespace {

std::string step_text(std::int64_t step) { return step < 0 ? "-" : std::to_string(step); }

std::string applied_text(const std::map<int, std::int64_t>& applied) {
  if (applied.empty()) return "-";
  const std::int64_t first = applied.begin()->second;
  const bool same =
      std::all_of(applied.begin(), applied.end(), [&](const auto& one) { return one.second == first; });
  if (same) {
    return std::to_string(first) + " on " + std::to_string(applied.size()) +
           (applied.size() == 1 ? " rank" : " ranks");
  }
  std::string text;
  for (const auto& [rank, step] : applied) {
    text += (text.empty() ? "" : ", ") + std::to_string(step) + " on rank " + std::to_string(rank);
  }
  return text;
}

// False for a refused config file: its on or off is unknown.
bool knows_on_or_off(const HistoryEntry& entry) { return entry.verdict != "refused" || entry.cause == "ctl"; }

const char* asked_text(const HistoryEntry& entry) {
  if (!knows_on_or_off(entry)) return "-";
  return entry.on ? "on" : "off";
}

OrderedJson json_of(const HistoryEntry& entry) {
  OrderedJson::object_t applied;  // A vector: operator[] would search it for each rank.
  for (const auto& [rank, step] : entry.applied) applied.push_back({std::to_string(rank), step});
  return {
      {"revision", entry.revision == Revision{} ? OrderedJson(nullptr) : OrderedJson(entry.revision.value)},
      {"cause", entry.cause},
      {"by", text_or_null(entry.by)},
      {"on", knows_on_or_off(entry) ? OrderedJson(entry.on) : OrderedJson(nullptr)},
      {"verdict", text_or_null(entry.verdict)},
      {"reason", text_or_null(entry.reason)},
      {"proposed_at", time_or_null(entry.proposed_at)},
      {"effective_step", step_or_null(entry.effective_step)},
      {"applied", OrderedJson(std::move(applied))},
      {"finished_step", step_or_null(entry.finished_step)}};
}

}  // namespace

Listing history_listing(const std::vector<HistoryEntry>& history) {
  Listing listing;
  listing.noun = "change";
  listing.keep = Listing::Keep::last;
  listing.before = history.empty() ? "no change yet\n" : "";
  if (history.empty()) return listing;
  const auto left = TextTable::Align::left;
  TextTable table({{"revision"},
                   {"verdict", left},
                   {"asks for", left},
                   {"cause", left},
                   {"proposed", left},
                   {"effective"},
                   {"applied", left},
                   {"finished"},
                   {"by", left},
                   {"reason", left}});
  for (const HistoryEntry& entry : history) {
    table.add({entry.revision == Revision{} ? "-" : std::to_string(entry.revision.value),
               entry.verdict.empty() ? "open" : entry.verdict, asked_text(entry), entry.cause,
               utc_text(entry.proposed_at), step_text(entry.effective_step), applied_text(entry.applied),
               step_text(entry.finished_step), entry.by, printable_lines(entry.reason, "; ")});
  }
  table.fill(listing);
  return listing;
}

std::string history_json(const std::vector<HistoryEntry>& history, JsonLayout layout) {
  OrderedJson revisions = OrderedJson::array();
  for (const HistoryEntry& entry : history) revisions.push_back(json_of(entry));
  return json_text({{"schema_version", kJsonSchemaVersion}, {"revisions", std::move(revisions)}}, layout);
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/alerts/alerts_view.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "control/alerts/alert_json.h"
#include "control/text/alert_words.h"
#include "tools/gradmonctl/cli/printable.h"
#include "tools/gradmonctl/cli/rank_ranges.h"
#include "tools/gradmonctl/cli/text_table.h"
#include "tools/gradmonctl/cli/time_text.h"

namespace gradmon {
namespace {

constexpr int kDigits = 6;
constexpr int kDigitsOfAGroup = 3;
constexpr auto kLeft = TextTable::Align::left;

// The listing without its table. `shown`: the alerts that the table shows or counts.
Listing frame_of(const CommandReply& reply, const std::string& noun, std::uint64_t shown) {
  Listing listing;
  listing.noun = noun;
  listing.before = reply.alerts.empty() ? "no alert is listed\n" : "";
  if (reply.raised_alerts > shown)
    listing.after =
        std::to_string(reply.raised_alerts - shown) +
        " more were raised and are not listed (with \"dump\": true, anomaly.json of each rank has them)\n";
  return listing;
}

// The alerts of one step and rule.
struct Group {
  const RankAlert* first = nullptr;
  std::vector<int> ranks;
  std::uint64_t series = 0;
};

bool is_scalar(const RankAlert& alert) {
  constexpr std::string_view kTask = "/scalar";
  const std::string_view tag = alert.tag_name;
  return tag.size() > kTask.size() && tag.substr(tag.size() - kTask.size()) == kTask;
}

// "head.output: gradient norm": the name comes first, because a narrow terminal cuts the end.
std::string name_first(const RankAlert& alert) {
  const std::string text = series_text(alert.tag_name, alert.op);
  const std::size_t of = text.find(" of ");
  return of == text.npos ? text : text.substr(of + 4) + ": " + text.substr(0, of);
}

// A training scalar stands for its group, although it may be reported after the step's tensors.
std::vector<Group> groups_of(const CommandReply& reply) {
  std::map<std::pair<std::int64_t, std::string>, Group> by_step;
  for (const RankAlert& alert : reply.alerts) {
    Group& group = by_step[{alert.step, alert.rule}];
    if (group.first == nullptr || (is_scalar(alert) && !is_scalar(*group.first))) group.first = &alert;
    group.ranks.push_back(alert.rank.value);
    group.series += 1 + alert.left_out;
  }
  std::vector<Group> groups;
  for (auto& [key, group] : by_step) groups.push_back(std::move(group));
  std::set<std::string> rules;
  std::stable_partition(groups.begin(), groups.end(),
                        [&](const Group& group) { return rules.insert(group.first->rule).second; });
  return groups;
}

// "0-3, 7"
std::string numbers_of(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  const std::string text = rank_ranges(ranks);  // "ranks 0-3, 7"
  return text.substr(text.find(' ') + 1);
}

}  // namespace

Listing alert_groups_listing(const CommandReply& reply) {
  std::uint64_t shown = 0;
  for (const RankAlert& alert : reply.alerts) shown += 1 + alert.left_out;
  Listing listing = frame_of(reply, "line", shown);
  if (reply.alerts.empty()) return listing;
  TextTable table(
      {{"step"}, {"rule", kLeft}, {"ranks", kLeft}, {"series"}, {"value"}, {"usually"}, {"first", kLeft}});
  for (const Group& group : groups_of(reply)) {
    const RankAlert& alert = *group.first;
    table.add({std::to_string(alert.step), alert.rule, numbers_of(group.ranks), std::to_string(group.series),
               number_text(alert.value, kDigitsOfAGroup), number_text(alert.history_mean, kDigitsOfAGroup),
               name_first(alert)});
  }
  table.fill(listing);
  return listing;
}

Listing alerts_listing(const CommandReply& reply) {
  Listing listing = frame_of(reply, "alert", reply.alerts.size());
  if (reply.alerts.empty()) return listing;
  TextTable table({{"received", kLeft},
                   {"rank"},
                   {"step"},
                   {"rule", kLeft},
                   {"value"},
                   {"history mean"},
                   {"op", kLeft},
                   {"tag", kLeft}});
  for (const RankAlert& alert : reply.alerts) {
    table.add({utc_text(alert.at), std::to_string(alert.rank.value), std::to_string(alert.step), alert.rule,
               number_text(alert.value, kDigits), number_text(alert.history_mean, kDigits), alert.op,
               alert.tag_name});
  }
  table.fill(listing);
  return listing;
}

std::string alert_line(const RankAlert& alert) {
  return utc_text(alert.at) + "  rank " + std::to_string(alert.rank.value) + "  " + printable(alert.message) +
         '\n';
}

std::string alerts_json(const CommandReply& reply, JsonLayout layout) {
  OrderedJson alerts = OrderedJson::array();
  for (const RankAlert& alert : reply.alerts) alerts.push_back(json_of(alert));
  return json_text({{"schema_version", kJsonSchemaVersion},
                    {"raised", reply.raised_alerts},
                    {"alerts", std::move(alerts)}},
                   layout);
}

std::string alert_json(const RankAlert& alert) { return json_text(json_of(alert), JsonLayout::one_line); }

}  // namespace gradmon

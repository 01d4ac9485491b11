// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/alerts/alerts_view.h"

#include <array>
#include <cstdio>
#include <utility>

#include "control/alerts/alert_json.h"
#include "tools/gradmonctl/show/printable.h"
#include "tools/gradmonctl/show/text_table.h"
#include "tools/gradmonctl/show/time_text.h"

namespace gradmon {
namespace {

std::string number_text(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.6g", value);
  return text.data();
}

std::uint64_t not_listed(const CommandReply& reply) {
  return reply.raised_alerts > reply.alerts.size() ? reply.raised_alerts - reply.alerts.size() : 0;
}

}  // namespace

Listing alerts_listing(const CommandReply& reply) {
  Listing listing;
  listing.noun = "alert";
  listing.keep = Listing::Keep::last;
  listing.before = reply.alerts.empty() ? "no alert is listed\n" : "";
  if (not_listed(reply) > 0)
    listing.after = std::to_string(not_listed(reply)) +
                    " more were raised and are not listed (anomaly.json of each rank may have them)\n";
  if (reply.alerts.empty()) return listing;
  const auto left = TextTable::Align::left;
  TextTable table({{"received", left},
                   {"rank"},
                   {"step"},
                   {"rule", left},
                   {"value"},
                   {"history mean"},
                   {"op", left},
                   {"tag", left}});
  for (const RankAlert& alert : reply.alerts) {
    table.add({utc_text(alert.at), std::to_string(alert.rank.value), std::to_string(alert.step), alert.rule,
               number_text(alert.value), number_text(alert.history_mean), alert.op, alert.tag_name});
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

// SPDX-License-Identifier: Apache-2.0
#include "control/alerts/unraised_alerts.h"

#include <algorithm>
#include <utility>

namespace gradmon {
namespace {

void add(std::deque<UnraisedAlerts::Told>& kept, UnraisedAlerts::Told one) {
  kept.push_back(std::move(one));
  if (kept.size() > UnraisedAlerts::kMostKept) kept.pop_front();
}

// Returns true if the alert was kept.
bool remove(std::deque<UnraisedAlerts::Told>& kept, Rank rank, const std::string& process_id,
            const RankAlert& alert) {
  const auto found = std::find_if(kept.begin(), kept.end(), [&](const UnraisedAlerts::Told& one) {
    return one.rank == rank && one.process_id == process_id && one.alert.step == alert.step &&
           one.alert.rule == alert.rule && one.alert.tag_name == alert.tag_name && one.alert.op == alert.op;
  });
  if (found == kept.end()) return false;
  kept.erase(found);
  return true;
}

}  // namespace

// The rank reports the alerts back cut by bounded().
void UnraisedAlerts::tell(Rank rank, const std::string& process_id, AlertReport report) {
  report = bounded(std::move(report));
  for (RankAlert& alert : report.alerts) add(unraised_, {rank, process_id, std::move(alert)});
}

AlertReport UnraisedAlerts::raised(Rank rank, const std::string& process_id, AlertReport report) {
  if (unraised_.empty() && orphans_.empty()) return report;
  auto& alerts = report.alerts;
  alerts.erase(std::remove_if(alerts.begin(), alerts.end(),
                              [&](const RankAlert& alert) {
                                remove(unraised_, rank, process_id, alert);
                                return remove(orphans_, rank, process_id, alert);
                              }),
               alerts.end());
  return report;
}

std::vector<UnraisedAlerts::Told> UnraisedAlerts::take_orphans(
    const std::function<bool(Rank, const std::string&)>& has_ended) {
  std::vector<Told> taken;
  const auto orphaned = std::stable_partition(unraised_.begin(), unraised_.end(), [&](const Told& one) {
    return !has_ended(one.rank, one.process_id);
  });
  for (auto one = orphaned; one != unraised_.end(); ++one) {
    add(orphans_, *one);
    taken.push_back(std::move(*one));
  }
  unraised_.erase(orphaned, unraised_.end());
  return taken;
}

}  // namespace gradmon

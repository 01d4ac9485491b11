// SPDX-License-Identifier: Apache-2.0
#include "control/alerts/alert_history.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace gradmon {
namespace {

using Alerts = std::vector<const Alert*>;

template <typename Iterator>
void add_pointers(Iterator begin, Iterator end, Alerts& to) {
  for (; begin != end; ++begin) to.push_back(&*begin);
}

// Moves the rank's alerts while they fit into the bytes. Returns the remaining bytes.
std::size_t take_fitting(Alerts& from, const std::optional<std::int64_t>& rank, std::size_t bytes,
                         std::vector<Alert>& to) {
  auto next = from.begin();
  for (; next != from.end(); ++next) {
    if (rank && (*next)->rank.value != *rank) continue;
    const std::size_t size = size_of(**next);
    if (size > bytes) break;
    bytes -= size;
    to.push_back(**next);
  }
  from.erase(from.begin(), next);
  return bytes;
}

void add(std::deque<UnraisedAlerts::Told>& kept, UnraisedAlerts::Told one) {
  kept.push_back(std::move(one));
  if (kept.size() > UnraisedAlerts::kMostKept) kept.pop_front();
}

// Returns true if the alert was kept.
bool remove(std::deque<UnraisedAlerts::Told>& kept, Rank rank, const std::string& process_id,
            const Alert& alert) {
  const auto found = std::find_if(kept.begin(), kept.end(), [&](const UnraisedAlerts::Told& one) {
    return one.rank == rank && one.process_id == process_id && one.alert.step == alert.step &&
           one.alert.rule == alert.rule && one.alert.tag_name == alert.tag_name && one.alert.op == alert.op;
  });
  if (found == kept.end()) return false;
  kept.erase(found);
  return true;
}

}  // namespace

std::vector<Alert> AlertHistory::add(Rank rank, const std::string& process_id, AlertReport report,
                                     std::int64_t now) {
  report = bounded(std::move(report));
  OfRank& of_rank = ranks_[rank.value];
  if (of_rank.process_id != process_id) {
    of_rank.process_id = process_id;
    of_rank.listed = 0;
  }
  for (Alert& alert : report.alerts) {
    alert.number = next_++;
    alert.at = now;
    alert.rank = rank;
    ++of_rank.listed;
    if (take_first(alert)) {
      first_.push_back(alert);
      continue;
    }
    if (of_rank.kept == kMostKeptOfARank) forget_oldest(rank.value);
    if (kept_.size() == kMostKept) forget_oldest(kept_.front().rank.value);
    kept_.push_back(alert);
    ++of_rank.kept;
  }
  return std::move(report.alerts);
}

// Notes the alert's step and returns true if it is the first of its rule and step and has room.
bool AlertHistory::take_first(const Alert& alert) {
  const auto name = std::find(kAnomalyNames.begin(), kAnomalyNames.end(), alert.rule);
  const auto rule = static_cast<std::size_t>(name - kAnomalyNames.begin());
  std::size_t& of_rank = ranks_[alert.rank.value].first[rule];
  if (steps_[rule].size() == kMostFirstOfARule || of_rank == kMostFirstOfARank) return false;
  if (!steps_[rule].insert(alert.step).second) return false;
  ++of_rank;
  return true;
}

// Restores the first ones from the oldest on, the others from the newest on: the oldest find no room.
void AlertHistory::restore(std::vector<Kept> earlier) {
  if (!earlier.empty()) next_ = std::max(next_, earlier.back().alert.number + 1);  // The clock may go back.
  const auto oldest = [](const std::deque<Alert>& alerts) {
    return alerts.empty() ? std::numeric_limits<std::uint64_t>::max() : alerts.front().number;
  };
  const std::uint64_t before = std::min(oldest(first_), oldest(kept_));
  std::vector<bool> is_first(earlier.size());
  std::deque<Alert> first;
  for (std::size_t i = 0; i < earlier.size(); ++i) {
    is_first[i] = earlier[i].alert.number < before && take_first(earlier[i].alert);
    if (is_first[i]) first.push_back(earlier[i].alert);
  }
  first_.insert(first_.begin(), first.begin(), first.end());
  for (std::size_t i = earlier.size(); i-- > 0;) {
    Kept& kept = earlier[i];
    if (kept.alert.number >= before) continue;
    OfRank& of_rank = ranks_[kept.alert.rank.value];
    if (of_rank.process_id.empty()) of_rank.process_id = kept.process_id;
    if (of_rank.process_id == kept.process_id) ++of_rank.listed;
    if (is_first[i] || kept_.size() == kMostKept || of_rank.kept == kMostKeptOfARank) continue;
    ++of_rank.kept;
    kept_.push_front(std::move(kept.alert));
  }
}

void AlertHistory::forget_oldest(int rank) {
  const auto oldest =
      std::find_if(kept_.begin(), kept_.end(), [&](const Alert& alert) { return alert.rank.value == rank; });
  if (oldest == kept_.end()) return;
  kept_.erase(oldest);
  --ranks_[rank].kept;
}

std::vector<Alert> AlertHistory::find(const Query& query) const {
  std::vector<Alert> found;
  Alerts from;
  std::size_t bytes = query.most_bytes;
  add_pointers(first_.begin(), first_.end(), from);
  if (query.after == 0) bytes = bytes - bytes / 2 + take_fitting(from, query.rank, bytes / 2, found);
  add_pointers(kept_.begin(), kept_.end(), from);
  const auto is_older = [](const Alert* a, const Alert* b) { return a->number < b->number; };
  std::sort(from.begin(), from.end(), is_older);
  if (query.after > 0) {
    const auto is_later = [&](const Alert* alert) { return alert->number > query.after; };
    from.erase(from.begin(), std::find_if(from.begin(), from.end(), is_later));
  } else {
    std::reverse(from.begin(), from.end());
  }
  take_fitting(from, query.rank, bytes, found);
  std::sort(found.begin(), found.end(), [&](const Alert& a, const Alert& b) { return is_older(&a, &b); });
  return found;
}

std::uint64_t AlertHistory::listed(Rank rank) const {
  const auto found = ranks_.find(rank.value);
  return found == ranks_.end() ? 0 : found->second.listed;
}

// The rank reports the alerts back cut by bounded().
void UnraisedAlerts::tell(Rank rank, const std::string& process_id, AlertReport report) {
  report = bounded(std::move(report));
  for (Alert& alert : report.alerts) add(unraised_, {rank, process_id, std::move(alert)});
}

AlertReport UnraisedAlerts::raised(Rank rank, const std::string& process_id, AlertReport report) {
  if (unraised_.empty() && orphans_.empty()) return report;
  auto& alerts = report.alerts;
  alerts.erase(std::remove_if(alerts.begin(), alerts.end(),
                              [&](const Alert& alert) {
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

// SPDX-License-Identifier: Apache-2.0
#include "control/alerts/alert_history.h"

#include <algorithm>
#include <utility>

namespace gradmon {
namespace {

// The first alerts of the query's rank from `alert` on, as far as the query's bytes go.
template <typename Iterator>
std::vector<RankAlert> first_that_fit(Iterator alert, Iterator end, const AlertHistory::Query& query) {
  std::vector<RankAlert> found;
  std::size_t bytes = 0;
  for (; alert != end; ++alert) {
    if (query.rank && alert->rank.value != *query.rank) continue;
    bytes += size_of(*alert);
    if (bytes > query.most_bytes) break;
    found.push_back(*alert);
  }
  return found;
}

}  // namespace

std::vector<RankAlert> AlertHistory::add(Rank rank, const std::string& process_id, AlertReport report,
                                         std::int64_t now) {
  report = bounded(std::move(report));
  OfRank& of_rank = ranks_[rank.value];
  if (of_rank.process_id != process_id) {
    of_rank.process_id = process_id;
    of_rank.listed = 0;
  }
  for (RankAlert& alert : report.alerts) {
    alert.number = next_++;
    alert.at = now;
    alert.rank = rank;
    ++of_rank.listed;
    if (of_rank.kept == kMostKeptOfARank) forget_oldest_of(rank.value);
    if (kept_.size() == kMostKept) forget_oldest_of(kept_.front().rank.value);
    kept_.push_back(alert);
    ++of_rank.kept;
  }
  return std::move(report.alerts);
}

// From the newest on, so that the oldest find no room.
void AlertHistory::restore(std::vector<Kept> earlier) {
  if (!earlier.empty()) next_ = std::max(next_, earlier.back().alert.number + 1);  // The clock may go back.
  for (auto kept = earlier.rbegin(); kept != earlier.rend(); ++kept) {
    if (!kept_.empty() && kept->alert.number >= kept_.front().number) continue;
    OfRank& of_rank = ranks_[kept->alert.rank.value];
    if (of_rank.process_id.empty()) of_rank.process_id = kept->process_id;
    if (of_rank.process_id == kept->process_id) ++of_rank.listed;
    if (kept_.size() == kMostKept || of_rank.kept == kMostKeptOfARank) continue;
    ++of_rank.kept;
    kept_.push_front(std::move(kept->alert));
  }
}

void AlertHistory::forget_oldest_of(int rank) {
  const auto oldest = std::find_if(kept_.begin(), kept_.end(),
                                   [&](const RankAlert& alert) { return alert.rank.value == rank; });
  if (oldest == kept_.end()) return;
  kept_.erase(oldest);
  --ranks_[rank].kept;
}

std::vector<RankAlert> AlertHistory::find(const Query& query) const {
  if (query.after == 0) {
    auto newest = first_that_fit(kept_.rbegin(), kept_.rend(), query);
    std::reverse(newest.begin(), newest.end());
    return newest;
  }
  const auto next =
      std::upper_bound(kept_.begin(), kept_.end(), query.after,
                       [](std::uint64_t number, const RankAlert& alert) { return number < alert.number; });
  return first_that_fit(next, kept_.end(), query);
}

std::uint64_t AlertHistory::listed(Rank rank) const {
  const auto found = ranks_.find(rank.value);
  return found == ranks_.end() ? 0 : found->second.listed;
}

}  // namespace gradmon

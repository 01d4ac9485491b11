// SPDX-License-Identifier: Apache-2.0
#include "control/agree/journal.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace gradmon {

bool is_counted(const RankStatus& rank) { return rank.state != "left" && rank.state != "dropped"; }

AgreeingRanks count_agreeing_ranks(const Status& status) {
  AgreeingRanks sums;
  for (const RankStatus& rank : status.ranks) {
    sums.rows_dropped += rank.dropped;
    if (rank.state == "dropped") sums.dropped.push_back(rank.rank.value);
    if (rank.state == "left") sums.ended.push_back(rank.rank.value);
    if (!is_counted(rank)) continue;
    ++sums.counted;
    sums.waited_ms = std::max(sums.waited_ms, rank.waited_ms);
    const bool heard = rank.state != "absent" && rank.last_seen_ms < kHeardWithinMs;
    if (heard && rank.revision == status.revision) ++sums.agreeing;
  }
  if (!status.unlisted) return sums;
  const AgreeingRanks& rest = *status.unlisted;
  sums.agreeing += rest.agreeing;
  sums.counted += rest.counted;
  sums.dropped.insert(sums.dropped.end(), rest.dropped.begin(), rest.dropped.end());
  sums.ended.insert(sums.ended.end(), rest.ended.begin(), rest.ended.end());
  sums.waited_ms = std::max(sums.waited_ms, rest.waited_ms);
  sums.rows_dropped += rest.rows_dropped;
  return sums;
}

namespace {

bool is_refused(const HistoryEntry& entry) { return entry.verdict == "refused"; }

}  // namespace

HistoryEntry history_entry(const Plan& plan, WallTime proposed_at) {
  HistoryEntry entry;
  entry.cause = name_of(plan.cause);
  entry.by = plan.by;
  entry.on = plan.on;
  entry.proposed_at = proposed_at;
  entry.request_id = plan.request_id;
  return entry;
}

void enter_verdict(HistoryEntry& entry, const Verdict& verdict) {
  entry.verdict = verdict.commit() ? "commit" : "abort";
  entry.reason = verdict.reason;
  entry.final = true;
  if (!verdict.commit()) return;
  entry.effective_step = verdict.effective.value;
  entry.steps = schedule_of(*verdict.plan, verdict.effective);
}

Journal::Key Journal::add(HistoryEntry entry) {
  const Key key = next_++;
  const bool refused = is_refused(entry);
  entries_.emplace(key, std::move(entry));
  changed_.insert(key);
  if (refused) drop_oldest_refused();
  drop_oldest();
  return key;
}

// Counts again, because each entry grows after add(), by one rank each time.
void Journal::drop_oldest() {
  std::size_t count = 0;
  std::size_t applied = 0;
  auto kept = entries_.end();
  while (kept != entries_.begin()) {
    const HistoryEntry& entry = std::prev(kept)->second;
    applied += entry.applied.size() + (entry.by.size() + entry.reason.size()) / 64;
    if (++count > 2 && (count > kMostKept || applied > kMostApplied)) break;
    --kept;
  }
  for (auto dropped = entries_.begin(); dropped != kept; dropped = entries_.erase(dropped))
    changed_.erase(dropped->first);
}

void Journal::drop_oldest_refused() {
  const auto is = [](const auto& entry) { return is_refused(entry.second); };
  auto count = static_cast<std::size_t>(std::count_if(entries_.begin(), entries_.end(), is));
  for (; count > kMostRefused; --count) {
    const auto oldest = std::find_if(entries_.begin(), entries_.end(), is);
    changed_.erase(oldest->first);
    entries_.erase(oldest);
  }
}

void Journal::restore(HistoryEntry entry) {
  entries_.emplace(next_++, std::move(entry));
  if (entries_.size() > kMostKept) entries_.erase(entries_.begin());
}

HistoryEntry* Journal::find(Key key) {
  const auto at = entries_.find(key);
  return at == entries_.end() ? nullptr : &at->second;
}

void Journal::touch(Revision revision) {
  for (auto at = entries_.rbegin(); at != entries_.rend(); ++at) {
    if (at->second.revision == revision) return touch(at->first);
  }
}

HistoryEntry* Journal::find(Revision revision) {
  for (auto at = entries_.rbegin(); at != entries_.rend(); ++at) {
    if (at->second.revision == revision) return &at->second;
  }
  return nullptr;
}

const HistoryEntry* Journal::find_request(const std::string& request_id) const {
  for (auto at = entries_.rbegin(); at != entries_.rend(); ++at) {
    if (at->second.request_id == request_id) return &at->second;
  }
  return nullptr;
}

std::vector<HistoryEntry> Journal::entries() const {
  std::vector<HistoryEntry> all;
  all.reserve(entries_.size());
  for (const auto& [key, entry] : entries_) all.push_back(entry);
  return all;
}

std::map<Journal::Key, HistoryEntry> Journal::take_changed() {
  std::map<Key, HistoryEntry> taken;
  for (const Key key : std::exchange(changed_, {})) {
    if (const HistoryEntry* entry = find(key)) taken.emplace(key, *entry);
  }
  return taken;
}

}  // namespace gradmon

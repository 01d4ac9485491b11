// SPDX-License-Identifier: Apache-2.0
#include "control/agree/decision_log.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace gradmon {
namespace {

constexpr std::size_t kBytesBesideTexts = 500;  // of an entry

std::size_t size_of(const PlanPtr& plan) {
  return kBytesBesideTexts + (plan ? plan->config_text.size() : 0) +
         (plan && plan->returns_to ? plan->returns_to->config_text.size() : 0);
}

// Returns none for an entry about a rank.
std::optional<Revision> entry_revision(const LogEntry& entry) {
  if (const auto* offered = std::get_if<OfferedEntry>(&entry)) return offered->revision;
  if (const auto* verdict = std::get_if<Verdict>(&entry)) return verdict->revision;
  if (const auto* ended = std::get_if<WrittenBackEntry>(&entry)) return ended->revision;
  if (const auto* applied = std::get_if<AppliedEntry>(&entry)) return applied->revision;
  return {};
}

// Returns the revisions to keep; see compacted(). OverheadBudget counts from the user's newest commit.
std::set<Revision> kept_revisions(const std::vector<LogEntry>& entries, std::size_t kept_bytes) {
  std::set<Revision> kept;
  Revision highest;
  std::size_t bytes = 0;
  bool offer_kept = false;
  bool commit_kept = false;
  bool users_commit_kept = false;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    const auto* offered = std::get_if<OfferedEntry>(&*entry);
    const auto* verdict = std::get_if<Verdict>(&*entry);
    if (offered == nullptr && verdict == nullptr) continue;
    const Revision revision = *entry_revision(*entry);
    highest = std::max(highest, revision);
    const bool commits = verdict != nullptr && verdict->commit();
    const bool users = commits && is_of_user(*verdict->plan);
    bytes += size_of(offered != nullptr ? offered->plan : verdict->plan);
    const bool needed =
        (offered != nullptr && !offer_kept) || (commits && !commit_kept) || (users && !users_commit_kept);
    offer_kept = offer_kept || offered != nullptr;
    commit_kept = commit_kept || commits;
    users_commit_kept = users_commit_kept || users;
    if (needed || bytes <= kept_bytes) kept.insert(revision);
  }
  kept.insert(highest);
  return kept;
}

// The step that Membership::restore() keeps from a rank's entry after its first; unset: none.
std::optional<Step> departed_step(const LogEntry& entry) {
  if (const auto* joined = std::get_if<JoinedEntry>(&entry))
    return joined->hello.lapsed ? std::optional(joined->hello.step) : std::nullopt;
  if (const auto* gone = std::get_if<DepartureEntry>(&entry))
    return gone->how == DepartureEntry::How::evicted ? std::nullopt : std::optional(gone->last);
  return {};
}

// The entries that determine a rank's state: its first join, the first and the last join of its newest
// process, and the last join of the process before. Without the latter, a process that came back could seem
// to have stayed.
class RankEntries {
 public:
  // `at`: the index of the entry. Returns the entries that this one replaces.
  std::vector<std::size_t> join(const std::string& process_id, std::size_t at) {
    std::vector<std::size_t> replaced;
    const auto replace = [&](std::size_t old, std::size_t kept) {
      if (old != first_ && old != kept) replaced.push_back(old);
    };
    if (first_ && process_id == process_id_) {
      replace(last_, process_first_);
    } else if (first_) {
      replace(before_, last_);
      replace(process_first_, last_);
      before_ = last_;
      process_first_ = at;
    } else {
      first_ = before_ = process_first_ = at;
    }
    if (first_ != at) replaced.insert(replaced.end(), gone_.begin(), gone_.end());
    gone_.clear();
    process_id_ = process_id;
    last_ = at;
    return replaced;
  }
  void depart(std::size_t at) { gone_.push_back(at); }

 private:
  std::string process_id_;
  std::optional<std::size_t> first_;
  std::size_t before_ = 0, process_first_ = 0, last_ = 0;
  std::vector<std::size_t> gone_;  // departures since the last join
};

// The indices of rank entries that change nothing. Excludes two kinds that must stay known: the entry with
// the highest step, and the first entry of each earlier epoch.
std::set<std::size_t> replaced_of_ranks(const std::vector<LogEntry>& entries) {
  std::map<Rank, RankEntries> ranks;
  std::set<std::size_t> replaced;
  std::map<std::string, std::size_t> first_of_epoch;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (const auto* gone = std::get_if<DepartureEntry>(&entries[i])) ranks[gone->rank].depart(i);
    const auto* joined = std::get_if<JoinedEntry>(&entries[i]);
    if (joined == nullptr) continue;
    first_of_epoch.emplace(joined->hello.held_epoch, i);
    for (const std::size_t one : ranks[joined->rank].join(joined->hello.process_id, i)) replaced.insert(one);
  }
  const auto highest = std::max_element(replaced.begin(), replaced.end(), [&](std::size_t a, std::size_t b) {
    return departed_step(entries[a]) < departed_step(entries[b]);
  });
  if (highest != replaced.end()) replaced.erase(highest);
  for (const auto& [epoch, first] : first_of_epoch) replaced.erase(first);
  return replaced;
}

}  // namespace

std::vector<LogEntry> compacted(const std::vector<LogEntry>& entries, std::size_t kept_bytes) {
  const std::set<Revision> kept = kept_revisions(entries, kept_bytes);
  const std::set<std::size_t> replaced = replaced_of_ranks(entries);
  std::vector<LogEntry> left;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto revision = entry_revision(entries[i]);
    if (revision ? kept.count(*revision) != 0 : replaced.count(i) == 0) left.push_back(entries[i]);
  }
  return left;
}

}  // namespace gradmon

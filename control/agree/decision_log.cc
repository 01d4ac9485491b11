// SPDX-License-Identifier: Apache-2.0
#include "control/agree/decision_log.h"

#include <algorithm>
#include <iterator>
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

// The indices of rank entries that change nothing. Keeps a rank's first join, the first and the last of its
// newest process, and the last of the process before: without that one, a process that came back could seem
// to have stayed. Keeps the entry with the highest step and the first entry of each earlier epoch, too.
std::set<std::size_t> replaced_of_ranks(const std::vector<LogEntry>& entries) {
  std::map<Rank, std::vector<std::size_t>> joins;
  std::map<std::string, std::size_t> first_of_epoch;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto* joined = std::get_if<JoinedEntry>(&entries[i]);
    if (joined == nullptr) continue;
    joins[joined->rank].push_back(i);
    first_of_epoch.emplace(joined->hello.held_epoch, i);
  }
  std::set<std::size_t> replaced;
  for (const auto& [rank, all] : joins) {
    const auto process = [&](std::size_t i) { return std::get<JoinedEntry>(entries[i]).hello.process_id; };
    const auto is_other = [&, &all = all](std::size_t i) { return process(i) != process(all.back()); };
    const auto newest = std::find_if(all.rbegin(), all.rend(), is_other).base();
    const std::set<std::size_t> kept{all.front(), *newest, all.back(),
                                     *(newest == all.begin() ? newest : newest - 1)};
    std::set_difference(all.begin(), all.end(), kept.begin(), kept.end(),
                        std::inserter(replaced, replaced.end()));
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto* gone = std::get_if<DepartureEntry>(&entries[i]);
    if (gone == nullptr || joins.count(gone->rank) == 0) continue;
    const auto& of_rank = joins[gone->rank];
    if (of_rank.front() < i && i < of_rank.back()) replaced.insert(i);
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

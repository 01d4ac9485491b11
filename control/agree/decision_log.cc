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

// Unset: the entry is of a rank.
std::optional<Revision> revision_of(const LogEntry& entry) {
  if (const auto* offered = std::get_if<OfferedEntry>(&entry)) return offered->revision;
  if (const auto* verdict = std::get_if<Verdict>(&entry)) return verdict->revision;
  if (const auto* ended = std::get_if<WrittenBackEntry>(&entry)) return ended->revision;
  if (const auto* applied = std::get_if<AppliedEntry>(&entry)) return applied->revision;
  return {};
}

// Which revisions to keep; see compacted(). OverheadBudget counts from the newest commit of the user's.
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
    const Revision revision = *revision_of(*entry);
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

// The step that Membership::restore() remembers of an entry after the rank's first; unset: none.
std::optional<Step> departed_step(const LogEntry& entry) {
  if (const auto* joined = std::get_if<JoinedEntry>(&entry))
    return joined->hello.lapsed ? std::optional(joined->hello.step) : std::nullopt;
  if (const auto* gone = std::get_if<DepartureEntry>(&entry))
    return gone->how == DepartureEntry::How::evicted ? std::nullopt : std::optional(gone->last);
  return {};
}

// The entries of a rank between the first and the last time that its newest process has joined.
class RejoiningProcess {
 public:
  // `at`: the index of the entry. Returns the entries that a later one has replaced.
  std::vector<std::size_t> join(const Hello& hello, std::size_t at) {
    const bool same = last_ && process_id_ == hello.process_id && held_epoch_ == hello.held_epoch;
    std::vector<std::size_t> replaced = same ? since_last_ : std::vector<std::size_t>();
    if (same && last_ != first_) replaced.push_back(*last_);
    if (!last_ || process_id_ != hello.process_id) first_ = at;
    process_id_ = hello.process_id;
    held_epoch_ = hello.held_epoch;
    last_ = at;
    since_last_.clear();
    return replaced;
  }
  void depart(std::size_t at) { since_last_.push_back(at); }

 private:
  std::string process_id_;
  std::string held_epoch_;
  std::optional<std::size_t> first_;
  std::optional<std::size_t> last_;
  std::vector<std::size_t> since_last_;  // departures
};

// The indices of entries of ranks that change nothing: of a process that has joined again and again. The
// highest step of them must stay known, so its entry is left out.
std::set<std::size_t> replaced_of_ranks(const std::vector<LogEntry>& entries) {
  std::map<Rank, RejoiningProcess> ranks;
  std::set<std::size_t> replaced;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (const auto* gone = std::get_if<DepartureEntry>(&entries[i])) ranks[gone->rank].depart(i);
    const auto* joined = std::get_if<JoinedEntry>(&entries[i]);
    if (joined == nullptr) continue;
    for (const std::size_t one : ranks[joined->rank].join(joined->hello, i)) replaced.insert(one);
  }
  const auto highest = std::max_element(replaced.begin(), replaced.end(), [&](std::size_t a, std::size_t b) {
    return departed_step(entries[a]) < departed_step(entries[b]);
  });
  if (highest != replaced.end()) replaced.erase(highest);
  return replaced;
}

}  // namespace

std::vector<LogEntry> compacted(const std::vector<LogEntry>& entries, std::size_t kept_bytes) {
  const std::set<Revision> kept = kept_revisions(entries, kept_bytes);
  const std::set<std::size_t> replaced = replaced_of_ranks(entries);
  std::vector<LogEntry> left;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto revision = revision_of(entries[i]);
    if (revision ? kept.count(*revision) != 0 : replaced.count(i) == 0) left.push_back(entries[i]);
  }
  return left;
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "control/agree/decision_log.h"

#include <algorithm>
#include <iterator>
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

// Whether OverheadBudget counts from this plan.
bool is_of_user(const Plan& plan) {
  return plan.cause != Cause::budget && plan.cause != Cause::resync && plan.cause != Cause::alert;
}

}  // namespace

std::vector<LogEntry> compacted(const std::vector<LogEntry>& entries, std::size_t kept_bytes) {
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
  std::vector<LogEntry> left;
  std::copy_if(entries.begin(), entries.end(), std::back_inserter(left), [&](const LogEntry& entry) {
    const auto revision = revision_of(entry);
    return !revision || kept.count(*revision) != 0;
  });
  return left;
}

}  // namespace gradmon

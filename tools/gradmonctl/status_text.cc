// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/status_text.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>

#include "tools/gradmonctl/printable.h"
#include "tools/gradmonctl/text_table.h"
#include "tools/gradmonctl/time_text.h"

namespace gradmon {
namespace {

constexpr const char* kBetween = " · ";
constexpr std::int64_t kStalledMs = 30'000;

std::string pending_text(const Status& status) {
  const Pending& pending = *status.pending;
  const std::string what =
      pending.revision == Revision{} ? "a change" : "revision " + std::to_string(pending.revision.value);
  return what + " pending" + (pending.reason.empty() ? "" : ": " + printable(pending.reason));
}

std::string state_text(const Status& status) {
  if (status.state == "on") {
    const std::int64_t left = std::max<std::int64_t>(status.collect_times - status.collected, 0);
    return "ON since step " + std::to_string(status.effective_step) + kBetween + std::to_string(left) +
           " of " + std::to_string(status.collect_times) + " collections left" +
           (status.reason.empty() ? "" : kBetween + printable(status.reason)) +
           (status.pending ? kBetween + pending_text(status) : "");
  }
  if (status.pending) return "OFF, " + pending_text(status);
  return status.reason.empty() ? "OFF" : "OFF: " + printable(status.reason);
}

// A rank that has ended runs no step under another revision.
bool agrees(const RankStatus& rank, Revision revision) {
  return rank.state == "left" || (rank.state != "absent" && rank.revision == revision);
}

std::string agreement_text(const Status& status) {
  if (status.mode == "static") return "static mode";
  const auto agreeing = std::count_if(status.ranks.begin(), status.ranks.end(),
                                      [&](const RankStatus& rank) { return agrees(rank, status.revision); });
  return std::to_string(agreeing) + "/" + std::to_string(status.ranks.size()) + " ranks agree (" +
         (status.revision == Revision{} ? "no revision yet"
                                        : "revision " + std::to_string(status.revision.value)) +
         ")";
}

std::string step_ms_text(double milliseconds) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.1f", milliseconds);
  return text.data();
}

std::vector<std::string> cells_of(const RankStatus& rank) {
  const std::string number = std::to_string(rank.rank.value);
  if (rank.state == "absent") return {number, "-", "-", "-", "-", "-", rank.state, "-", "-", "-", "-", "-"};
  return {number,
          rank.host,
          std::to_string(rank.pid),
          std::to_string(rank.step),
          rank.revision == Revision{} ? "-" : std::to_string(rank.revision.value),
          rank.applied_step < 0 ? "-" : std::to_string(rank.applied_step),
          rank.state,
          step_ms_text(rank.step_ms),
          rank.overhead.collected == 0 ? "-" : percent_text(rank.overhead.share),
          span_text(rank.last_seen_ms) + " ago",
          std::to_string(rank.records),
          std::to_string(rank.dropped)};
}

std::string rank_table(const std::vector<RankStatus>& ranks) {
  const auto left = TextTable::Align::left;
  TextTable table({{"rank"},
                   {"host", left},
                   {"pid"},
                   {"step"},
                   {"revision"},
                   {"applied"},
                   {"state", left},
                   {"step ms"},
                   {"overhead"},
                   {"seen"},
                   {"records"},
                   {"dropped"}});
  for (const RankStatus& rank : ranks) table.add(cells_of(rank));
  return ranks.empty() ? std::string() : "\n" + table.text();
}

std::string targets_trouble(const std::string& rank, const TargetCounts& targets) {
  if (targets.silent == 0) return "";
  return rank + ": " + std::to_string(targets.silent) + " of " + std::to_string(targets.watched) +
         " targets silent (gradmonctl targets says which and why)\n";
}

std::string troubles(const Status& status) {
  std::string text;
  for (const RankStatus& rank : status.ranks) {
    const std::string name = "rank " + std::to_string(rank.rank.value);
    if (!rank.error.empty()) text += name + ": " + printable(rank.error) + '\n';
    text += targets_trouble(name, rank.targets);
    const bool runs = rank.state != "absent" && rank.state != "left";
    if (runs && rank.last_stepped_ms >= kStalledMs) {
      text += name + " has not stepped for " + span_text(rank.last_stepped_ms) + '\n';
    }
  }
  for (const std::string& warning : status.warnings) text += "warning: " + printable(warning) + '\n';
  if (status.last_error) {
    const LastError& error = *status.last_error;
    text += "last error (" + utc_text(error.at) + ", " + std::to_string(error.count) +
            (error.count == 1 ? " time" : " times") + " in all): " + printable(error.text) + '\n';
  }
  return text.empty() ? text : "\n" + text;
}

}  // namespace

std::string status_line(const Status& status) {
  const std::uint64_t dropped =
      std::accumulate(status.ranks.begin(), status.ranks.end(), std::uint64_t{0},
                      [](std::uint64_t sum, const RankStatus& rank) { return sum + rank.dropped; });
  return state_text(status) + kBetween + agreement_text(status) + kBetween + std::to_string(dropped) +
         " dropped";
}

std::string status_text(const Status& status) {
  std::string text = status_line(status) + '\n' + rank_table(status.ranks) + troubles(status);
  if (!status.config_path.empty()) text += "\nconfig " + printable(status.config_path) + '\n';
  if (!status.register_home.empty()) text += "register " + printable(status.register_home) + '\n';
  return text;
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "control/alerts/alert_report.h"
#include "control/host/mailbox.h"
#include "control/host/token_bucket.h"

namespace gradmon {

// The alerts of this rank that the agent must still send to the lead hub. Bounded in number and in rate;
// alerts that do not fit are only counted. Any thread, unless a member says otherwise.
class AlertOutbox {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr std::size_t kMostWaiting = 64;      // reports
  static constexpr TokenBucket::Rate kReports{2, 16};  // rate of sending

  // `mailbox`: the agent's. put() wakes it.
  explicit AlertOutbox(std::shared_ptr<Mailbox> mailbox);

  // The writer thread: adds the alerts of a step. Returns at once. If kMostWaiting reports wait, the new one
  // is dropped: the first alerts of a fault say more about it than the later ones. But the first report with
  // a rule always has room: no rule can hide that another one has fired.
  void put(AlertReport report);
  // Agent thread: the report to send next. nullopt: none waits, or the next must wait for its turn.
  std::optional<AlertReport> take(Clock::time_point now);
  // All alerts so far, including dropped alerts and alerts omitted from their report.
  std::uint64_t raised() const;

 private:
  const std::shared_ptr<Mailbox> mailbox_;  // own synchronisation
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::deque<AlertReport> waiting_;
  std::set<std::string> rules_;  // of all reports so far
  std::uint64_t raised_ = 0;
  TokenBucket reports_;
};

}  // namespace gradmon

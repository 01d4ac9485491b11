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
#include <vector>

#include "control/alerts/alert_report.h"
#include "control/alerts/replicas.h"
#include "control/host/mailbox.h"
#include "control/host/rate_limits.h"

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

// The rows of a step that other ranks should hold as well.
struct ReplicaStep {
  ReplicaGroup group;
  double threshold = 0;            // of the rule
  std::vector<ReplicaRows> kinds;  // one element for each kind
};

// The digests that the agent must still send to the lead hub for AnomalyRankDivergence, and the values that
// the lead hub may request. Bounded in number, bytes and rate; digests that do not fit are dropped and
// counted. Any thread, unless a member says otherwise.
class ReplicaOutbox {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr std::size_t kMostWaiting = 256;                 // digests
  static constexpr std::size_t kMostKept = std::size_t{8} << 20U;  // bytes, of the newest steps
  static constexpr TokenBucket::Rate kMessages{4, 16};             // rate of sending digests
  static constexpr TokenBucket::Rate kAnswers{32, 128};            // rate of answers to requests

  // `mailbox`: the agent's. put() wakes it.
  explicit ReplicaOutbox(std::shared_ptr<Mailbox> mailbox);

  // The writer thread: adds the rows of a step. Returns at once.
  void put(ReplicaStep step);
  // Agent thread: the message to send next. nullopt: none waits, or the next must wait for its turn.
  std::optional<ReplicaDigests> take(Clock::time_point now);
  // Agent thread: the answer to the lead hub's request; without rows if the step is no longer kept. nullopt:
  // the requests exceed the rate, or no step was ever put.
  std::optional<ReplicaValues> answer(const ReplicaRequest& request, Clock::time_point now);
  // The number of dropped digests.
  std::uint64_t dropped() const;

 private:
  struct Kept {
    ReplicaRows rows;
    std::size_t bytes = 0;  // including targets that no earlier step shares
  };

  bool shares_targets(const ReplicaRows& rows) const;
  void keep(ReplicaRows rows);

  const std::shared_ptr<Mailbox> mailbox_;  // own synchronisation
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  ReplicaGroup group_;
  double threshold_ = 0;
  std::deque<ReplicaDigest> waiting_;
  std::deque<Kept> kept_;  // the newest last
  std::size_t kept_bytes_ = 0;
  std::uint64_t dropped_ = 0;
  TokenBucket messages_;
  TokenBucket answers_;
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "control/link/report_outbox.h"

#include <algorithm>
#include <utility>

#include "control/alert_rule.h"

namespace gradmon {

AlertOutbox::AlertOutbox(std::shared_ptr<Mailbox> mailbox)
    : mailbox_(std::move(mailbox)), reports_(kReports, Clock::now()) {}

void AlertOutbox::put(AlertReport report) {
  report = bounded(std::move(report));
  {
    const std::lock_guard lock(mutex_);
    raised_ += report.alerts.size() + report.left_out;
    bool new_rule = false;
    for (const Alert& alert : report.alerts)
      new_rule |= rules_.size() < kAnomalyNames.size() && rules_.insert(alert.rule).second;
    if (waiting_.size() < kMostWaiting || new_rule) waiting_.push_back(std::move(report));
  }
  mailbox_->wake();
}

std::optional<AlertReport> AlertOutbox::take(Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (waiting_.empty() || !reports_.try_take(now)) return std::nullopt;
  AlertReport next = std::move(waiting_.front());
  waiting_.pop_front();
  return next;
}

std::uint64_t AlertOutbox::raised() const {
  const std::lock_guard lock(mutex_);
  return raised_;
}

ReplicaOutbox::ReplicaOutbox(std::shared_ptr<Mailbox> mailbox)
    : mailbox_(std::move(mailbox)), messages_(kMessages, Clock::now()), answers_(kAnswers, Clock::now()) {}

void ReplicaOutbox::put(ReplicaStep step) {
  std::vector<ReplicaDigest> digests;
  for (const ReplicaRows& rows : step.kinds) digests.push_back(fold_into_digest(rows));
  {
    const std::lock_guard lock(mutex_);
    group_ = step.group;
    threshold_ = step.threshold;
    for (ReplicaRows& rows : step.kinds) keep(std::move(rows));
    for (ReplicaDigest& digest : digests) {
      if (waiting_.size() < kMostWaiting) {
        waiting_.push_back(std::move(digest));
      } else {
        ++dropped_;
      }
    }
  }
  mailbox_->wake();
}

// Steps share their targets while the same parameters have rows.
bool ReplicaOutbox::shares_targets(const ReplicaRows& rows) const {
  const auto recent = kept_.end() - static_cast<std::ptrdiff_t>(std::min(kept_.size(), kKinds));
  return std::any_of(recent, kept_.end(),
                     [&](const Kept& kept) { return kept.rows.targets == rows.targets; });
}

void ReplicaOutbox::keep(ReplicaRows rows) {
  std::size_t bytes = sizeof(Kept) + sizeof(double) * rows.values.size();
  if (!shares_targets(rows)) {
    for (const ReplicaTarget& target : *rows.targets) bytes += sizeof(target) + target.name.size();
  }
  kept_bytes_ += bytes;
  kept_.push_back({std::move(rows), bytes});
  while (kept_bytes_ > kMostKept && kept_.size() > 1) {
    kept_bytes_ -= kept_.front().bytes;
    kept_.pop_front();
  }
}

std::optional<ReplicaDigests> ReplicaOutbox::take(Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (waiting_.empty() || !messages_.try_take(now)) return std::nullopt;
  ReplicaDigests message{group_.id, group_.size, {}};
  while (!waiting_.empty() && message.digests.size() < kMostReplicaDigests) {
    message.digests.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  return message;
}

std::optional<ReplicaValues> ReplicaOutbox::answer(const ReplicaRequest& request, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (threshold_ <= 0 || !answers_.try_take(now)) return std::nullopt;
  ReplicaValues answer{request, group_.id, threshold_, {}};
  const auto kept = std::find_if(kept_.rbegin(), kept_.rend(), [&](const Kept& each) {
    return each.rows.revision == request.revision && each.rows.step == request.step &&
           static_cast<std::int64_t>(each.rows.kind) == request.kind;
  });
  if (kept != kept_.rend())
    answer.rows = rows_in_bucket(kept->rows, static_cast<std::size_t>(request.bucket));
  return answer;
}

std::uint64_t ReplicaOutbox::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

}  // namespace gradmon

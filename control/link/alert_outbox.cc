// SPDX-License-Identifier: Apache-2.0
#include "control/link/alert_outbox.h"

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
    for (const RankAlert& alert : report.alerts)
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

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "writers/alerts/recent_alerts.h"

namespace gradmon {

RecentAlerts::Content RecentAlerts::content() const {
  const std::lock_guard lock(mutex_);
  return {{events_.begin(), events_.end()}, total_};
}

void RecentAlerts::add(const StepAlerts& alerts) {
  const std::lock_guard lock(mutex_);
  total_ += alerts.events.size() + alerts.left_out;
  for (const AlertEvent& event : alerts.events) {
    if (events_.size() == kMostKept) events_.pop_front();
    events_.push_back(event);
  }
}

}  // namespace gradmon

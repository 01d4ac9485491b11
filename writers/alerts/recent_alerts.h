// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "writers/alerts/alert_event.h"

namespace gradmon {

// The last alerts of this rank. The writer thread adds them, the program reads them. Any thread.
class RecentAlerts {
 public:
  static constexpr std::size_t kMostKept = 256;

  struct Content {
    std::vector<AlertEvent> events;  // oldest first
    std::uint64_t total = 0;         // alerts so far, including dropped ones
  };

  Content content() const;
  void add(const StepAlerts& alerts);

 private:
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::deque<AlertEvent> events_;
  std::uint64_t total_ = 0;
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// The alerts of a job on a ZeroMQ PUB socket (writers/alerts/ALERTS.md). Subscribers could exhaust the memory
// or descriptors of the process that serves them. So a separate process serves them, the publisher, which is
// `gradmonctl alerts --publish SOCKET`: when it dies, the hub restarts it, and nothing else is affected.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "control/alerts/alert_report.h"
#include "control/aliases.h"
#include "control/files/descriptor.h"

namespace gradmon {

// The hub's end: starts the publisher and sends it the alerts. Never waits for a subscriber, and at most 200
// ms for the end of a publisher that it kills. The lead hub's thread only.
class AlertPublisher {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr std::chrono::seconds kRestartAfter{3};
  static constexpr std::chrono::seconds kStuckAfter{10};

  struct Settings {
    fs::path program;  // gradmonctl; empty: alerts are not published
    fs::path socket;   // in a directory that only this user may enter
  };

  explicit AlertPublisher(Settings settings) : settings_(std::move(settings)) {}
  // Ends the publisher, which first sends the alerts it has received.
  ~AlertPublisher() { close(); }
  AlertPublisher(const AlertPublisher&) = delete;
  AlertPublisher& operator=(const AlertPublisher&) = delete;

  // Drops and counts alerts that the publisher does not take at once.
  void publish(const std::vector<Alert>& alerts);
  // Starts the publisher if it does not run and is `wanted`. Restarts it if its socket was removed or
  // replaced, or if it has taken nothing for kStuckAfter although alerts wait. Call it about once a second,
  // and before publishing alerts.
  void tend(Clock::time_point now, bool wanted);
  void close();

  // "ipc://PATH", or "" while no publisher runs.
  std::string endpoint() const;
  // Lines for the status: dropped alerts, and the reason why no publisher runs.
  std::vector<std::string> warnings() const;

 private:
  void start();
  void reap();
  void stop(const std::string& why);
  std::string fault(Clock::time_point now);

  const Settings settings_;
  Descriptor alerts_;  // to the publisher's standard input
  pid_t publisher_ = -1;
  std::optional<Clock::time_point> started_;  // last start
  // State of the running publisher: the time since its input is full, and its socket as first seen.
  std::optional<Clock::time_point> full_since_;
  std::optional<std::pair<dev_t, ino_t>> bound_;
  std::string trouble_;  // the reason why none runs, or ""
  std::uint64_t dropped_ = 0;
};

}  // namespace gradmon

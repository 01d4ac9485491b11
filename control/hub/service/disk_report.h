// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "control/hub/service/disk_thread.h"
#include "control/log.h"

namespace gradmon {

// What the status has to say of one place on a disk: that its disk does not answer,
// and which other jobs use it. The hub's thread.
class DiskReport {
 public:
  using Line = std::pair<LogLevel, std::string>;

  // `place` for people: "output directory /out". `disk`, which outlives this object,
  // is the thread that works there, now and then also where nothing is asked of it.
  DiskReport(std::string place, const DiskThread& disk) : place_(std::move(place)), disk_(disk) {}

  void used_by(std::vector<std::string> others) { others_ = std::move(others); }
  std::vector<std::string> warnings() const;
  // A line for the log for each condition that has begun or ended since the last call.
  std::vector<Line> news();

 private:
  bool is_silent() const;
  std::set<std::string> conditions() const;

  const std::string place_;
  const DiskThread& disk_;
  std::vector<std::string> others_;
  std::set<std::string> reported_;
};

}  // namespace gradmon

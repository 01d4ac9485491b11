// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "control/hub/service/disk_thread.h"
#include "control/log.h"

namespace gradmon {

// Status lines about one place on a disk: whether the disk responds, and the other jobs that use the place.
// The hub's thread.
class DiskReport {
 public:
  using Line = std::pair<LogLevel, std::string>;

  // `place` for people: "output directory /out". `disk` is the thread that works there; it must outlive
  // this object.
  DiskReport(std::string place, const DiskThread& disk) : place_(std::move(place)), disk_(disk) {}

  void used_by(std::vector<std::string> others) { others_ = std::move(others); }
  void notes(std::vector<std::string> lines) { notes_ = std::move(lines); }
  std::vector<std::string> warnings() const;
  // A log line for each condition that began or ended since the last call.
  std::vector<Line> take_changes();

 private:
  bool is_unresponsive() const;
  std::set<std::string> conditions() const;

  const std::string place_;
  const DiskThread& disk_;
  std::vector<std::string> others_;
  std::vector<std::string> notes_;
  std::set<std::string> reported_;
};

}  // namespace gradmon

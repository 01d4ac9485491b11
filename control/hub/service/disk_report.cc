// SPDX-License-Identifier: Apache-2.0
#include "control/hub/service/disk_report.h"

#include <chrono>

namespace gradmon {
namespace {

constexpr std::chrono::seconds kSilentAfter{2};
constexpr const char* kNoAnswer = ": no answer from the disk";

}  // namespace

bool DiskReport::is_unresponsive() const { return disk_.current_task_age() >= kSilentAfter; }

std::set<std::string> DiskReport::conditions() const {
  std::set<std::string> lines;
  if (is_unresponsive()) lines.insert(place_ + kNoAnswer);
  for (const std::string& other : others_) lines.insert(place_ + " is used by another job, too: " + other);
  for (const std::string& note : notes_) lines.insert(place_ + ": " + note);
  return lines;
}

std::vector<std::string> DiskReport::warnings() const {
  std::vector<std::string> lines;
  const auto time = std::chrono::duration_cast<std::chrono::seconds>(disk_.current_task_age());
  for (const std::string& line : conditions())
    lines.push_back(line == place_ + kNoAnswer ? line + " for " + std::to_string(time.count()) + " s" : line);
  return lines;
}

std::vector<DiskReport::Line> DiskReport::take_changes() {
  std::vector<Line> lines;
  auto now = conditions();
  for (const std::string& line : now) {
    if (reported_.count(line) == 0) lines.emplace_back(LogLevel::warn, line);
  }
  for (const std::string& line : reported_) {
    if (now.count(line) == 0) lines.emplace_back(LogLevel::info, "resolved: " + line);
  }
  reported_ = std::move(now);
  return lines;
}

}  // namespace gradmon

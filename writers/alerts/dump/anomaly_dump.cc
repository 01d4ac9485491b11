// SPDX-License-Identifier: Apache-2.0
#include "writers/alerts/dump/anomaly_dump.h"

#include <algorithm>
#include <utility>

#include "control/log.h"

namespace gradmon {

std::optional<FileToWrite> AnomalyDump::add(const std::vector<AlertEvent>& events) {
  const std::size_t room = limits_.events - std::min(limits_.events, waiting_.size());
  const std::size_t taken = std::min(room, events.size());
  waiting_.insert(waiting_.end(), events.begin(), events.begin() + static_cast<std::ptrdiff_t>(taken));
  if (taken < events.size()) give_up(events.size() - taken, "anomaly.json cannot be written");
  if (waiting_.empty() || !write_.expired()) return std::nullopt;
  const auto token = std::make_shared<bool>(true);
  write_ = token;
  return FileToWrite{[self = shared_from_this(), token] { return self->write(); }};
}

tl::expected<void, std::string> AnomalyDump::write() {
  auto directory = directory_();
  if (!directory) return tl::unexpected(std::move(directory.error()));
  const std::filesystem::path file = *directory / "anomaly.json";
  auto extended = extend_anomaly_file(file, waiting_, limits_);
  if (!extended) return tl::unexpected(std::move(extended.error()));
  waiting_.clear();
  if (!extended->kept_aside.empty())
    log_warn(file.string() + " was not a dump of alerts; it is now " + extended->kept_aside.string());
  if (extended->left_out > 0) give_up(extended->left_out, file.string() + " is full: rename or remove it");
  return {};
}

void AnomalyDump::give_up(std::size_t events, const std::string& why) {
  given_up_ += events;
  if (!std::exchange(given_up_logged_, true)) log_warn("alerts are missing from the dump: " + why);
}

}  // namespace gradmon

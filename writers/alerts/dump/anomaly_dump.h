// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "writers/alerts/alert_event.h"
#include "writers/alerts/dump/anomaly_file.h"
#include "writers/queue/file_to_write.h"

namespace gradmon {

// Writes the alerts of this rank to anomaly.json. Writer thread.
class AnomalyDump : public std::enable_shared_from_this<AnomalyDump> {
 public:
  using Directory = std::function<tl::expected<std::filesystem::path, std::string>()>;

  // `directory` returns the directory of the file, made if missing. Called for every write.
  explicit AnomalyDump(Directory directory, const AnomalyFileLimits& limits = {})
      : directory_(std::move(directory)), limits_(limits) {}

  // Takes events to write. Returns the write to do, or nullopt if an earlier write is still pending: it then
  // includes these events. At most `limits.events` wait, for a full disk; later events are dropped.
  std::optional<FileToWrite> add(const std::vector<AlertEvent>& events);

  // Events dropped so far: the file, or the list of waiting events, was full.
  std::size_t given_up() const { return given_up_; }

 private:
  tl::expected<void, std::string> write();
  void give_up(std::size_t events, const std::string& why);

  const Directory directory_;
  const AnomalyFileLimits limits_;
  std::vector<AlertEvent> waiting_;
  std::weak_ptr<void> write_;  // alive while the writer thread has the write
  std::size_t given_up_ = 0;
  bool given_up_logged_ = false;
};

}  // namespace gradmon

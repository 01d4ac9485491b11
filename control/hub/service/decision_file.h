// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "control/agree/decision_log.h"
#include "control/agree/wall_time.h"
#include "control/files/descriptor.h"

namespace gradmon {

// The owner of a decision log.
struct EpochHeader {
  std::string epoch;
  std::string launch_id;
  std::string run_id;
  WallTime started = 0;
};

// The decision log of one epoch, a file in the job's directory. That directory is in memory (tmpfs), so
// the log survives the hub but not the host. Entries have a length and a check sum; reading ends at
// the first incomplete one. Space is reserved in advance, so that a full file system is noticed before
// an entry must be written. One thread.
class DecisionFile : public DecisionLog {
 public:
  struct Opened {
    std::unique_ptr<DecisionFile> file;
    EpochHeader header;
    std::vector<LogEntry> entries;  // of the previous hub
  };

  // Continues the epoch in the file if it is of the same launch; otherwise starts `fresh` and replaces
  // the file.
  static tl::expected<Opened, std::string> open(const std::filesystem::path& path, EpochHeader fresh);

  tl::expected<void, std::string> append(const LogEntry& entry) override;

  // Whether the path still names this file. If not, put_back() writes the whole log to the path again;
  // it can still read the removed file. A file that another hub has put there stays.
  bool is_at_its_path() const;
  tl::expected<void, std::string> put_back();

 private:
  DecisionFile(std::filesystem::path path, Descriptor file, std::int64_t end)
      : path_(std::move(path)), file_(std::move(file)), end_(end) {}
  tl::expected<void, std::string> append(std::string_view bytes);
  tl::expected<void, std::string> reserve(std::int64_t bytes);

  const std::filesystem::path path_;
  Descriptor file_;
  std::int64_t end_;           // of the last complete entry
  std::int64_t reserved_ = 0;  // end of the reserved space
};

}  // namespace gradmon

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

  static constexpr std::int64_t kMostBytes = 256 << 20;

  // Continues the epoch in the file if it is of the same launch; otherwise starts `fresh` and replaces
  // the file. A file of more than `most_bytes` is refused, and append() refuses an entry that does not fit.
  static tl::expected<Opened, std::string> open(const std::filesystem::path& path, EpochHeader fresh,
                                                std::int64_t most_bytes = kMostBytes);

  tl::expected<void, std::string> append(const LogEntry& entry) override;

  // Whether the path still names this file. If not, relink() writes the whole log to the path again;
  // it can still read the removed file. A file that another hub has put there stays.
  bool is_at_its_path() const;
  tl::expected<void, std::string> relink();

 private:
  DecisionFile(std::filesystem::path path, Descriptor file, std::int64_t end, std::int64_t most_bytes)
      : path_(std::move(path)), most_bytes_(most_bytes), file_(std::move(file)), end_(end) {}
  tl::expected<void, std::string> append(std::string_view bytes);
  tl::expected<void, std::string> reserve(std::int64_t bytes);

  const std::filesystem::path path_;
  const std::int64_t most_bytes_;
  Descriptor file_;
  std::int64_t end_;           // of the last complete entry
  std::int64_t reserved_ = 0;  // end of the reserved space
};

}  // namespace gradmon

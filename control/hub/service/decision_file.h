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

// Who a decision log belongs to.
struct EpochHeader {
  std::string epoch;
  std::string launch_id;
  std::string run_id;
  WallTime started = 0;
};

// The decision log of one epoch as a file of the job's directory, which lies in
// memory (tmpfs): it survives the hub, not the host. Entries are appended with a
// length and a check sum; reading ends at the first that is not whole. Room is
// reserved ahead, so that a full file system is found before an entry is needed.
// One thread.
class DecisionFile : public DecisionLog {
 public:
  struct Opened {
    std::unique_ptr<DecisionFile> file;
    EpochHeader header;
    std::vector<LogEntry> entries;  // of the life before
  };

  // Goes on with the epoch that the file holds where that is of the same launch;
  // else begins `fresh`, replacing what is there.
  static tl::expected<Opened, std::string> open(const std::filesystem::path& path, EpochHeader fresh);

  tl::expected<void, std::string> append(const LogEntry& entry) override;

  // Whether the path still names this file. If not, put_back() writes all of it anew
  // there: what was removed can still be read here. What appears at the path in
  // between is another hub's, and stays.
  bool is_at_its_path() const;
  tl::expected<void, std::string> put_back();

 private:
  DecisionFile(std::filesystem::path path, Descriptor file, std::int64_t end)
      : path_(std::move(path)), file_(std::move(file)), end_(end) {}
  tl::expected<void, std::string> append(std::string_view bytes);
  tl::expected<void, std::string> reserve(std::int64_t bytes);

  const std::filesystem::path path_;
  Descriptor file_;
  std::int64_t end_;           // of what is whole
  std::int64_t reserved_ = 0;  // up to here
};

}  // namespace gradmon

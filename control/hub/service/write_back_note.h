// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <tl/expected.hpp>

#include "control/config/file_identity.h"

namespace gradmon {

// `$OUT/.gradmon/writeback.json`: `dynamic_on: false` must be written into one save of the config file.
// The note exists from before the write-back until it has ended, so that the next job can finish a
// write-back that was killed. Does file I/O; one thread.
class WriteBackNote {
 public:
  WriteBackNote(const std::filesystem::path& output_dir, const std::filesystem::path& config_path);

  // Durable when it returns. Replaces another note; keeps a note of this save unchanged.
  tl::expected<void, std::string> write(const FileIdentity& save) const;
  // The save of the note; none: no note exists that trusted_file.h would trust, or it is for another config
  // file.
  std::optional<FileIdentity> read() const;
  void remove() const;

 private:
  const std::filesystem::path note_;
  const std::filesystem::path config_path_;  // absolute
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <tl/expected.hpp>

#include "control/config/file_identity.h"

namespace gradmon {

// `$OUT/.gradmon/writeback.json`: that `dynamic_on: false` is due in one save of
// the config file. It is there from before the write-back until that has ended,
// so that the next job can do what a kill has cut off. Does file I/O; one thread.
class WriteBackNote {
 public:
  WriteBackNote(const std::filesystem::path& output_dir, const std::filesystem::path& config_path);

  // On disk for good when it returns; replaces an older one.
  tl::expected<void, std::string> leave(const FileIdentity& save) const;
  // The save it is due in; none: there is no note, or it is another config file's.
  std::optional<FileIdentity> read() const;
  void remove() const;

 private:
  const std::filesystem::path note_;
  const std::filesystem::path config_path_;  // absolute
};

}  // namespace gradmon

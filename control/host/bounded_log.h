// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>

#include "control/aliases.h"
#include "control/files/descriptor.h"

namespace gradmon {

// The log file of a process without a terminal. A file that would exceed `most_bytes` is renamed to
// `path`.1, which replaces the previous one, and a new file is started. write() blocks only on that
// file, which must be on a local disk. A line that cannot be written is dropped and counted; the next
// successful write first logs the count. Any thread; lines of several threads do not mix.
class BoundedLog {
 public:
  // The first write() opens the file.
  explicit BoundedLog(fs::path path, std::size_t most_bytes = std::size_t{1} << 20U);
  BoundedLog(const BoundedLog&) = delete;
  BoundedLog& operator=(const BoundedLog&) = delete;

  // Appends `line` and a newline. Control characters are written as \xNN. A line is cut off at 4 KiB or at
  // half of `most_bytes`, whichever is less. A removed file is created again. Never touches a file that is
  // not a regular file of this user, and drops the line.
  void write(std::string_view line) noexcept;

 private:
  bool append(std::string_view line);
  bool put(std::string_view bytes);
  bool ready_for(std::size_t bytes);
  bool open_file();

  const fs::path path_;
  const fs::path older_;
  const std::size_t most_bytes_;
  const std::size_t longest_line_;

  std::mutex mutex_;
  // Guarded by mutex_.
  Descriptor file_;
  std::size_t size_ = 0;       // bytes in the file
  std::uint64_t dropped_ = 0;  // lines that the log does not mention yet
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string_view>

#include "control/files/descriptor.h"

namespace gradmon {

// The log file of a process without a terminal: lines in `path`, at most
// `most_bytes` of them, then it becomes `path`.1 (the one before is lost) and a new
// one begins. Waits for nothing but that file, which must be a local one. Where a
// line cannot be written it is dropped and counted; the next line that can be says
// how many. Any thread; the lines of several do not mix.
class BoundedLog {
 public:
  // Opens nothing yet.
  explicit BoundedLog(std::filesystem::path path, std::size_t most_bytes = std::size_t{1} << 20U);
  BoundedLog(const BoundedLog&) = delete;
  BoundedLog& operator=(const BoundedLog&) = delete;

  // Adds the end of the line. Control characters are written as \xNN; what is over
  // 4 KiB, or half of `most_bytes`, is cut off. A file that was removed is made
  // anew; one that is not a regular file of this user's is not touched.
  void write(std::string_view line) noexcept;

  std::uint64_t dropped() const;  // since the start

 private:
  bool append(std::string_view line);
  bool put(std::string_view bytes);
  bool ready_for(std::size_t bytes);
  bool open_file();

  const std::filesystem::path path_;
  const std::filesystem::path older_;
  const std::size_t most_bytes_;
  const std::size_t longest_line_;

  mutable std::mutex mutex_;
  Descriptor file_;       // guarded by mutex_, as what follows
  std::size_t size_ = 0;  // of the file
  std::uint64_t dropped_ = 0;
  std::uint64_t not_reported_ = 0;  // of dropped_
};

}  // namespace gradmon

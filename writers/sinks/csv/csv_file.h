// SPDX-License-Identifier: Apache-2.0
// Appends rows to a CSV file, all or none. One thread at a time; holds nothing
// open between calls, so that a directory that was moved, removed or unmounted
// is found out at the next call and not written to unseen.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

namespace gradmon {

class CsvFile {
 public:
  enum class Outcome {
    written,
    other_header,  // the file that is there has other columns; nothing was written
  };

  // Appends `rows` (whole lines) to `path`, and makes the file (0640, under the
  // umask) with `header` (one whole line) where it is missing or empty. A new
  // file appears under its name with header and rows in it, by rename, in a
  // directory that is made (0750) where it is missing. Where a file that was not
  // left by this object's last call ends in a partial row, that is cut off
  // first. An error means that the rows are not in the file, and names it.
  [[nodiscard]] tl::expected<Outcome, std::string> append(const std::filesystem::path& path,
                                                          std::string_view header, std::string_view rows);

 private:
  [[nodiscard]] tl::expected<Outcome, std::string> create(const std::filesystem::path& path,
                                                          std::string_view header, std::string_view rows);
  void remember(ino_t inode, off_t size, std::string_view header);

  // What the last call left; a file just like it need not be looked at again.
  ino_t inode_ = 0;
  off_t size_ = 0;
  std::string header_;
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// Appends rows to a CSV file, all or none. One thread at a time. It keeps no file open between
// calls, so the next call notices a directory that was moved, removed or unmounted.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "writers/sinks/known_rows.h"
#include "writers/sinks/resumed_samples.h"

namespace gradmon {

class CsvFile {
 public:
  enum class Outcome {
    written,
    other_header,  // the existing file has other columns; nothing was written
  };

  // Finds the rows of an earlier process in `path`; none without a file. Cuts off a partial row at its end.
  // An error names the file.
  [[nodiscard]] static tl::expected<KnownRows, std::string> find_rows(const std::filesystem::path& path);

  // The numbers of samples in the file's rows. Changes no row. Empty without a file.
  [[nodiscard]] static tl::expected<SamplesByStep, std::string> find_samples(
      const std::filesystem::path& path);

  // Appends `rows` (whole lines) to `path`. A file that is missing, or has only a part of a first line, is
  // made new (0640, under the umask; its directory 0750): it appears by rename, with `header` (one whole
  // line) and the rows in it. First cuts off a partial row that an earlier process left at the end. An error
  // names the file, and means that the rows are not in it, unless it says that they may remain.
  [[nodiscard]] tl::expected<Outcome, std::string> append(const std::filesystem::path& path,
                                                          std::string_view header, std::string_view rows);

 private:
  [[nodiscard]] tl::expected<Outcome, std::string> create(const std::filesystem::path& path,
                                                          std::string_view header, std::string_view rows);
  void remember(ino_t inode, off_t size, std::string_view header);

  // The file after the last call. If it is unchanged, it need not be read again.
  ino_t inode_ = 0;
  off_t size_ = 0;
  std::string header_;
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/files/descriptor.h"
#include "tools/analyse/rows/csv_reader.h"
#include "tools/analyse/rows/problems.h"
#include "tools/analyse/rows/row_columns.h"

namespace gradmon {

// The rows of one CSV file, to which a running job may be appending. Adds unreadable rows to `problems` and
// skips them; silently skips a torn last row. One thread.
class RowFile {
 public:
  // Never waits for a FIFO. A file that cannot be opened is a problem, and has no rows.
  RowFile(std::filesystem::path path, Problems& problems);
  // For a text from elsewhere; `path` is for messages.
  RowFile(std::filesystem::path path, CsvReader::Read read, Problems& problems);
  RowFile(const RowFile&) = delete;
  RowFile& operator=(const RowFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Returns false at the end. The texts of the row are valid until the next call.
  bool next(Row& row);

 private:
  void take_header();
  bool next_line();

  const std::filesystem::path path_;
  Problems& problems_;
  Descriptor file_;
  CsvReader reader_;
  std::vector<std::string_view> cells_;
  std::optional<RowColumns> columns_;  // nullopt: no header so far
  std::size_t row_of_line_ = 0;        // the next one of cells_; 0: of the next line
  std::string name_;                   // of the last row, if it is not a cell's text
  std::int64_t step_ = -1;             // of the last row
  std::uint64_t place_ = 0;            // of the next row of step_
};

}  // namespace gradmon

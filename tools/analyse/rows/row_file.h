// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "control/files/descriptor.h"
#include "tools/analyse/rows/row.h"
#include "tools/analyse/rows/runs.h"

namespace gradmon {

// Splits a CSV text into rows of cells while reading it. The longest accepted row bounds the memory. Reads
// like Python's csv module: cells in double quotes may contain commas, line ends and doubled quotes. Reports
// and skips a row that cannot be split, and continues at its second line. One thread.
class CsvReader {
 public:
  static constexpr std::size_t kMaxRowBytes = std::size_t{1} << 20;
  static constexpr std::size_t kMaxCells = 64;

  // Fills up to `room` bytes at `into`; returns the number of bytes, 0 at the end of the text and after an
  // error.
  using Read = std::function<std::size_t(char* into, std::size_t room)>;

  enum class Found : std::uint8_t {
    row,
    malformed,  // skips the row; problem() has the reason
    torn,       // the text ends without a line end: skips the rest
    end,
  };

  explicit CsvReader(Read read);

  // The cells are valid until the next call. Drops a byte order mark, and a "\r" before a line end. A text
  // with either in its first line was saved by a spreadsheet: its last row needs no line end.
  Found next(std::vector<std::string_view>& cells);

  // The line of the last row found. The first line is 1.
  std::uint64_t line() const { return line_; }
  const std::string& problem() const { return problem_; }

 private:
  enum class Scan : std::uint8_t { row, more, malformed };

  Scan scan(std::vector<std::string_view>& cells);
  Scan scan_quoted(char*& at, std::vector<std::string_view>& cells);
  void unescape(std::vector<std::string_view>& cells);
  bool fill();
  Found skip_line(const char* problem);
  Found at_end();

  const Read read_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;     // of the row to scan
  std::size_t filled_ = 0;    // bytes in buffer_
  bool ended_ = false;        // read_ has returned 0
  bool saved_again_ = false;  // by a spreadsheet
  std::uint64_t line_ = 1;
  std::uint64_t next_line_ = 1;
  std::uint64_t lines_in_row_ = 1;    // of the row being scanned
  std::vector<std::size_t> escaped_;  // indices of the cells with doubled quotes
  std::string problem_;
};

// The columns of one header, and the rows read by them. A value; pure. Older releases of msprobe wrote
// "param_name" or "module_name" in place of "name", and "input.norm" and "output.norm" (for gradients
// "input_grad.norm") in one row of a module: such a row is read as two, of "{module}.input" and
// "{module}.output".
class RowColumns {
 public:
  // The error: the titles are no header of gradmon or msprobe, because "name" or "step" is missing, or two
  // titles mean the same. Skips unknown titles.
  static tl::expected<RowColumns, std::string> of_header(const std::vector<std::string_view>& titles);

  // True if the cells are a header, not a row: for files that were joined.
  static bool is_header(const std::vector<std::string_view>& cells);

  // The number of rows in the cells of one line.
  std::size_t rows_of_line() const { return parts_.empty() ? 1 : parts_.size(); }

  // Fills all but `line` and `place`. `index`: of the row, below rows_of_line(). `name` stores the row's name
  // if it is not the text of a cell. The error names the found and the expected value. A row of msprobe
  // without a tensor, whose shape is "nan", has no values.
  tl::expected<void, std::string> read(const std::vector<std::string_view>& cells, Row& row,
                                       std::size_t index, std::string& name) const;

 private:
  enum class Role : std::uint8_t { vpp_stage, name, step, micro_step, shape, dtype, number, unused };
  struct Column {
    Role role = Role::unused;
    Field field = 0;          // of a number
    std::string_view part{};  // of a number: its part of the module; "": the row is of one
    std::string title;
  };

  static Column column_of(std::string_view title);
  static bool read_cell(const Column& column, std::string_view cell, Row& row);

  std::vector<Column> columns_;
  std::vector<std::string_view> parts_;  // named by the columns: "input", "output"
};

// Reads a number as Python, pandas or C++ prints it, "nan", "inf", "True" and "False". False: another text.
bool read_number(std::string_view text, double& value);

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

// The rows of one kind and rank, from all its files, with ascending steps if they ascend in each file. At
// most 64 files are open at a time. One thread.
class KindRows {
 public:
  // `files`: ascending, as from kind_files_in(). Both must outlive this object.
  KindRows(const std::vector<KindFile>& files, Problems& problems) : files_(files), problems_(problems) {}

  // Null at the end. Valid until the next call.
  const Row* next();
  // The file of the last row.
  const std::filesystem::path& path() const { return open_[current_].file->path(); }

 private:
  struct Open {
    std::unique_ptr<RowFile> file;
    Row row;  // not yet returned, except that of `current_`
  };

  void advance_current();
  void open_due_files();

  const std::vector<KindFile>& files_;
  Problems& problems_;
  std::size_t next_file_ = 0;  // the first that was not opened yet
  std::vector<Open> open_;
  std::size_t current_ = 0;
  bool returned_ = false;  // `current_` is the file of the last row
};

// The files that may have rows of steps from `first` to `last`.
std::vector<KindFile> files_of_steps(const std::vector<KindFile>& files, std::int64_t first,
                                     std::int64_t last);

}  // namespace gradmon

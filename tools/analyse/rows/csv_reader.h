// SPDX-License-Identifier: Apache-2.0
// Splits a CSV text into rows of cells while reading it. The longest accepted row bounds the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace gradmon {

// Reads like Python's csv module: cells in double quotes may contain commas, line ends and doubled quotes.
// Reports and skips a row that cannot be split, and continues at its second line. One thread.
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

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// Splits a CSV text into rows of cells as it is read. Memory is bounded by the longest row that is accepted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace gradmon {

// Reads as Python's csv module does: cells in double quotes may contain commas, line ends and doubled
// quotes. A row that cannot be split is reported and left out; reading goes on at its second line. One
// thread.
class CsvReader {
 public:
  static constexpr std::size_t kMaxRowBytes = std::size_t{1} << 20;
  static constexpr std::size_t kMaxCells = 64;

  // Fills `room` bytes at `into` as far as it can; returns the number of bytes, 0 at the end of the text and
  // after an error.
  using Read = std::function<std::size_t(char* into, std::size_t room)>;

  enum class Found : std::uint8_t {
    row,
    malformed,  // problem() says why; the row is left out
    torn,       // the text ends without a line end: what follows the last one is left out
    end,
  };

  explicit CsvReader(Read read);

  // The cells are valid until the next call. A byte order mark is left out, and a "\r" before a line end. A
  // text with either in its first line was saved by a spreadsheet: its last row needs no line end.
  Found next(std::vector<std::string_view>& cells);

  // Of the row that the last call found. The first line is 1.
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

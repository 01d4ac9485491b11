// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/rows/csv_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace gradmon {
namespace {

// Small enough for malloc to reuse it: a job may have a million files.
constexpr std::size_t kBlock = std::size_t{64} << 10;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

std::uint64_t line_ends(std::string_view text) {
  return static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

CsvReader::CsvReader(Read read) : read_(std::move(read)), buffer_(kBlock) {}

// Reads more into the buffer. Returns false if nothing came.
bool CsvReader::fill() {
  if (ended_) return false;
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, filled_ - begin_);
    filled_ -= begin_;
    begin_ = 0;
  }
  if (filled_ == buffer_.size()) buffer_.resize(std::min(2 * buffer_.size(), kMaxRowBytes + kBlock));
  const std::size_t before = filled_;
  while (filled_ < buffer_.size() && !ended_) {
    const std::size_t got = read_(buffer_.data() + filled_, buffer_.size() - filled_);
    ended_ = got == 0;
    filled_ += got;
  }
  if (next_line_ == 1 && before == 0) {
    const std::string_view text(buffer_.data(), filled_);
    if (text.substr(0, 3) == kByteOrderMark) begin_ = 3;
    const std::size_t line_end = text.find('\n');
    saved_again_ = begin_ > 0 || (line_end - 1 < filled_ && text[line_end - 1] == '\r');
  }
  if (ended_ && saved_again_ && filled_ > begin_ && buffer_[filled_ - 1] != '\n') buffer_[filled_++] = '\n';
  return filled_ > before;
}

// `at` is behind the opening quote; moves it to the next cell or behind the row.
CsvReader::Scan CsvReader::scan_quoted(char*& at, std::vector<std::string_view>& cells) {
  char* const end = buffer_.data() + filled_;
  char* const first = at;
  for (char* quote = at;; quote += 2) {
    quote = static_cast<char*>(std::memchr(quote, '"', static_cast<std::size_t>(end - quote)));
    if (quote == nullptr || quote + 1 == end) return Scan::more;
    if (quote[1] == '"') {
      if (escaped_.empty() || escaped_.back() != cells.size()) escaped_.push_back(cells.size());
      continue;
    }
    const std::string_view text(first, static_cast<std::size_t>(quote - first));
    lines_in_row_ += line_ends(text);
    cells.push_back(text);
    at = quote + 1;
    if (*at == '\r' && at + 1 == end) return Scan::more;
    if (*at == '\r' && at[1] == '\n') ++at;
    return *at == ',' || *at == '\n' ? Scan::row : Scan::malformed;
  }
}

CsvReader::Scan CsvReader::scan(std::vector<std::string_view>& cells) {
  cells.clear();
  escaped_.clear();
  lines_in_row_ = 1;
  char* const end = buffer_.data() + filled_;
  for (char* at = buffer_.data() + begin_;; ++at) {
    if (cells.size() == kMaxCells) return Scan::malformed;
    if (at == end) return Scan::more;
    if (*at == '"') {
      const Scan found = scan_quoted(++at, cells);
      if (found != Scan::row) return found;
    } else {
      char* const first = at;
      while (at != end && *at != ',' && *at != '\n') ++at;
      if (at == end) return Scan::more;
      const bool carriage_return = *at == '\n' && at != first && at[-1] == '\r';
      cells.emplace_back(first, static_cast<std::size_t>(at - first) - (carriage_return ? 1 : 0));
    }
    if (*at != '\n') continue;
    begin_ = static_cast<std::size_t>(at + 1 - buffer_.data());
    return Scan::row;
  }
}

// Works within the buffer: a row is scanned only once after this.
void CsvReader::unescape(std::vector<std::string_view>& cells) {
  for (const std::size_t index : escaped_) {
    char* const first = const_cast<char*>(cells[index].data());
    char* into = first;
    const char* const end = first + cells[index].size();
    for (const char* from = first; from != end; ++from) {
      *into++ = *from;
      if (*from == '"') ++from;
    }
    cells[index] = {first, static_cast<std::size_t>(into - first)};
  }
}

// Skips the first line of the row, of any length.
CsvReader::Found CsvReader::skip_line(const char* problem) {
  problem_ = problem;
  for (;;) {
    const auto* const end =
        static_cast<const char*>(std::memchr(buffer_.data() + begin_, '\n', filled_ - begin_));
    if (end != nullptr) {
      begin_ = static_cast<std::size_t>(end + 1 - buffer_.data());
      next_line_ = line_ + 1;
      return Found::malformed;
    }
    begin_ = filled_;
    if (!fill()) return Found::malformed;
  }
}

CsvReader::Found CsvReader::at_end() {
  if (begin_ == filled_) return Found::end;
  if (line_ends({buffer_.data() + begin_, filled_ - begin_}) > 0)
    return skip_line("a quoted cell does not end; expected a second quote");
  begin_ = filled_;
  return Found::torn;
}

CsvReader::Found CsvReader::next(std::vector<std::string_view>& cells) {
  line_ = next_line_;
  for (;;) {
    switch (scan(cells)) {
      case Scan::row:
        next_line_ = line_ + lines_in_row_;
        unescape(cells);
        return Found::row;
      case Scan::malformed:
        return skip_line(cells.size() == kMaxCells
                             ? "more than 64 cells"
                             : "text after a quoted cell; expected a comma or a line end");
      case Scan::more:
        if (filled_ - begin_ > kMaxRowBytes) return skip_line("longer than 1 MiB");
        if (!fill()) return at_end();
    }
  }
}

}  // namespace gradmon

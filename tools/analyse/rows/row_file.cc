// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/rows/row_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>
#include <system_error>
#include <tuple>
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

namespace {

constexpr std::size_t kShownBytes = 40;  // of a cell in a message

std::string shown(std::string_view cell) {
  return '"' + std::string(cell.substr(0, kShownBytes)) + (cell.size() > kShownBytes ? "..." : "") + '"';
}

template <typename Whole>
bool read_whole(std::string_view text, Whole& value) {
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  return result.ec == std::errc() &&
         (result.ptr == end ||
          std::string_view(result.ptr, static_cast<std::size_t>(end - result.ptr)) == ".0");
}

}  // namespace

bool read_number(std::string_view text, double& value) {
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ptr == end && result.ec == std::errc()) return true;
  if (text != "True" && text != "False") return false;
  value = text == "True" ? 1 : 0;
  return true;
}

RowColumns::Column RowColumns::column_of(std::string_view title) {
  constexpr std::array<std::pair<std::string_view, Role>, 8> kRoles = {{{"vpp_stage", Role::vpp_stage},
                                                                        {"name", Role::name},
                                                                        {"param_name", Role::name},
                                                                        {"module_name", Role::name},
                                                                        {"step", Role::step},
                                                                        {"micro_step", Role::micro_step},
                                                                        {"shape", Role::shape},
                                                                        {"dtype", Role::dtype}}};
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kParts = {
      {{"input.", "input"}, {"output.", "output"}, {"input_grad.", "input"}, {"output_grad.", "output"}}};
  Column column;
  column.title = title.substr(0, kShownBytes);
  for (const auto& [name, role] : kRoles) {
    if (title == name) column.role = role;
  }
  for (const auto& [prefix, part] : kParts) {
    if (title.substr(0, prefix.size()) != prefix) continue;
    column.part = part;
    title.remove_prefix(prefix.size());
    break;
  }
  column.field = field_named(title);
  if (column.field < kFields) column.role = Role::number;
  return column;
}

tl::expected<RowColumns, std::string> RowColumns::of_header(const std::vector<std::string_view>& titles) {
  RowColumns made;
  for (const std::string_view title : titles) {
    Column column = column_of(title);
    const auto means_the_same = [&](const Column& other) {
      return column.role != Role::unused && std::tie(column.role, column.field, column.part) ==
                                                std::tie(other.role, other.field, other.part);
    };
    if (std::count(titles.begin(), titles.end(), title) > 1 ||
        std::any_of(made.columns_.begin(), made.columns_.end(), means_the_same))
      return tl::unexpected("the title " + shown(title) + " is there twice");
    const bool is_new = std::find(made.parts_.begin(), made.parts_.end(), column.part) == made.parts_.end();
    if (column.role == Role::number && is_new) made.parts_.push_back(column.part);
    made.columns_.push_back(std::move(column));
  }
  if (!is_header(titles))
    return tl::unexpected("found " + shown(titles.empty() ? "" : titles.front()) +
                          " at the beginning; expected a header with the titles \"name\" and \"step\"");
  return made;
}

bool RowColumns::is_header(const std::vector<std::string_view>& cells) {
  const auto has = [&](Role role) {
    return std::any_of(cells.begin(), cells.end(),
                       [role](std::string_view cell) { return column_of(cell).role == role; });
  };
  return has(Role::name) && has(Role::step);
}

// Returns false if the cell does not fit its column.
bool RowColumns::read_cell(const Column& column, std::string_view cell, Row& row) {
  switch (column.role) {
    case Role::number:
      if (cell.empty()) return true;
      row.mask |= 1U << column.field;
      return read_number(cell, row.values[column.field]);
    case Role::name:
      row.name = cell;
      return true;
    case Role::shape:
      row.shape = cell;
      return true;
    case Role::dtype:
      row.dtype = cell;
      return true;
    case Role::step:
      return read_whole(cell, row.step) && row.step >= 0;
    case Role::vpp_stage:
      return cell.empty() || (read_whole(cell, row.vpp_stage) && row.vpp_stage >= 0);
    case Role::micro_step:
      return read_whole(cell, row.micro_step) && row.micro_step >= 0;
    case Role::unused:
      return true;
  }
  return false;
}

tl::expected<void, std::string> RowColumns::read(const std::vector<std::string_view>& cells, Row& row,
                                                 std::size_t index, std::string& name) const {
  if (cells.size() != columns_.size())
    return tl::unexpected("found " + std::to_string(cells.size()) + " cells; expected " +
                          std::to_string(columns_.size()) + " as in the header");
  row.micro_step = -1;
  row.vpp_stage = 0;
  row.mask = 0;
  row.shape = row.dtype = {};
  const std::string_view part = parts_.empty() ? std::string_view() : parts_[index];
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (columns_[i].role == Role::number && columns_[i].part != part) continue;
    if (read_cell(columns_[i], cells[i], row)) continue;
    const char* const expected = columns_[i].role == Role::number ? "a number" : "a whole number";
    return tl::unexpected("found " + shown(cells[i]) + " in the column " + columns_[i].title + "; expected " +
                          expected);
  }
  if (row.shape == "nan") row.mask = 0;
  if (!part.empty()) row.name = name.assign(row.name).append(".").append(part);
  return {};
}

RowFile::RowFile(std::filesystem::path path, Problems& problems)
    : path_(std::move(path)),
      problems_(problems),
      file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)),
      reader_([this](char* into, std::size_t room) -> std::size_t {
        ssize_t got = ::read(file_.get(), into, room);
        while (got < 0 && errno == EINTR) got = ::read(file_.get(), into, room);
        if (got < 0) problems_.add(path_, 0, std::string("cannot read: ") + std::strerror(errno));
        return got < 0 ? 0 : static_cast<std::size_t>(got);
      }) {
  struct stat status {};
  if (!file_.valid() || ::fstat(file_.get(), &status) != 0) {
    problems_.add(path_, 0, std::string("cannot open: ") + std::strerror(errno));
    file_.reset();
  } else if (!S_ISREG(status.st_mode)) {
    problems_.add(path_, 0, "not a regular file");
    file_.reset();
  }
  if (file_.valid()) take_header();
}

RowFile::RowFile(std::filesystem::path path, CsvReader::Read read, Problems& problems)
    : path_(std::move(path)), problems_(problems), reader_(std::move(read)) {
  take_header();
}

void RowFile::take_header() {
  const CsvReader::Found found = reader_.next(cells_);
  if (found == CsvReader::Found::malformed) {
    problems_.add(path_, 1, reader_.problem() + "; the file is left out");
    return;
  }
  if (found != CsvReader::Found::row) {
    problems_.add(path_, 1, "no whole line; expected a header with the titles \"name\" and \"step\"");
    return;
  }
  auto columns = RowColumns::of_header(cells_);
  if (columns) {
    columns_ = std::move(*columns);
  } else {
    problems_.add(path_, 1, columns.error() + "; the file is left out");
  }
}

// Reads the next line into cells_. Returns false at the end.
bool RowFile::next_line() {
  for (;;) {
    const CsvReader::Found found = reader_.next(cells_);
    if (found == CsvReader::Found::end || found == CsvReader::Found::torn) return false;
    if (found == CsvReader::Found::malformed) {
      problems_.add(path_, reader_.line(), reader_.problem() + "; the row is left out");
    } else if (cells_.size() > 1 || !cells_.front().empty()) {  // not an empty line
      return true;
    }
  }
}

bool RowFile::next(Row& row) {
  while (columns_) {
    if (row_of_line_ == 0 && !next_line()) return false;
    const auto read = columns_->read(cells_, row, row_of_line_, name_);
    row_of_line_ = (row_of_line_ + 1) % columns_->rows_of_line();
    if (read) {
      row.line = reader_.line();
      if (std::exchange(step_, row.step) != row.step) place_ = 0;
      row.place = place_++;
      return true;
    }
    row_of_line_ = 0;
    if (RowColumns::is_header(cells_)) {
      if (auto columns = RowColumns::of_header(cells_)) columns_ = std::move(*columns);
    } else {
      problems_.add(path_, reader_.line(), read.error() + "; the row is left out");
    }
  }
  return false;
}

namespace {

constexpr std::size_t kMostOpen = 64;

}  // namespace

void KindRows::advance_current() {
  if (!returned_) return;
  returned_ = false;
  if (!open_[current_].file->next(open_[current_].row))
    open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(current_));
}

// Opens the files that may have a row before the first row of the open files.
void KindRows::open_due_files() {
  const auto step = [](const Open& a, const Open& b) { return a.row.step < b.row.step; };
  while (next_file_ < files_.size() && open_.size() < kMostOpen) {
    const auto least = std::min_element(open_.begin(), open_.end(), step);
    if (least != open_.end() && least->row.step < files_[next_file_].name.first_step) return;
    Open opened{std::make_unique<RowFile>(files_[next_file_++].path, problems_), {}};
    if (opened.file->next(opened.row)) open_.push_back(std::move(opened));
  }
}

const Row* KindRows::next() {
  advance_current();
  open_due_files();
  if (open_.empty()) return nullptr;
  current_ = 0;
  for (std::size_t i = 1; i < open_.size(); ++i) {
    if (open_[i].row.step < open_[current_].row.step) current_ = i;
  }
  returned_ = true;
  return &open_[current_].row;
}

std::vector<KindFile> files_of_steps(const std::vector<KindFile>& files, std::int64_t first,
                                     std::int64_t last) {
  std::vector<KindFile> chosen;
  std::copy_if(files.begin(), files.end(), std::back_inserter(chosen), [&](const KindFile& file) {
    return file.name.first_step <= last && file.name.last_step >= first;
  });
  return chosen;
}

}  // namespace gradmon

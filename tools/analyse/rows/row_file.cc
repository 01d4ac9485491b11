// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/rows/row_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace gradmon {

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

}  // namespace gradmon

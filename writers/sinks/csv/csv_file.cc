// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/csv/csv_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "control/files/descriptor.h"
#include "control/files/durable_file.h"
#include "control/files/make_directories.h"
#include "writers/sinks/csv/csv_row_scanner.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

tl::unexpected<std::string> failure(const char* verb, const fs::path& path, int error) {
  return tl::unexpected("cannot " + std::string(verb) + " " + path.string() + ": " +
                        std::system_category().message(error));
}

int open_new(const fs::path& path) {
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0640);
}

struct Extent {
  std::string first_line;
  off_t valid_bytes = 0;  // through the last line end outside quotes
};

// -1 in `valid_bytes`: the file cannot be read. Stops reading at a first line that is longer than `header`.
Extent scan(int fd, std::string_view header) {
  Extent extent;
  std::array<char, 65536> block;
  bool quoted = false;
  bool in_first = true;
  off_t at = 0;
  for (;;) {
    const ssize_t n = ::pread(fd, block.data(), block.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) extent.valid_bytes = -1;
    if (n <= 0) return extent;
    for (ssize_t i = 0; i < n; ++i) {
      const char c = block[static_cast<std::size_t>(i)];
      if (in_first) extent.first_line += c;
      if (extent.first_line.size() > header.size()) return extent;
      if (c == '"') quoted = !quoted;
      if (c != '\n' || quoted) continue;
      in_first = false;
      extent.valid_bytes = at + i + 1;
    }
    at += n;
  }
}

// The treatment of an incomplete row at the end of a file.
enum class PartOfARow : bool { leave, cut };
// Finds nothing without a file.
tl::expected<CsvRowScanner, std::string> scan_rows(const fs::path& path, PartOfARow part) {
  const int access = part == PartOfARow::cut ? O_RDWR : O_RDONLY;
  Descriptor file(::open(path.c_str(), access | O_CLOEXEC | O_NONBLOCK));
  CsvRowScanner scanner;
  if (file.get() < 0 && errno == ENOENT) return scanner;
  struct stat seen {};
  if (file.get() < 0 || ::fstat(file.get(), &seen) != 0) return failure("open", path, errno);
  if (!S_ISREG(seen.st_mode)) return tl::unexpected(path.string() + " is not a regular file");
  std::vector<char> block(std::size_t{1} << 18U);
  for (off_t at = 0;;) {
    const ssize_t n = ::pread(file.get(), block.data(), block.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failure("read", path, errno);
    if (n == 0) break;
    scanner.take({block.data(), static_cast<std::size_t>(n)});
    at += n;
  }
  const auto whole = static_cast<off_t>(scanner.whole_bytes());
  const bool cut = part == PartOfARow::cut && whole != seen.st_size;
  if (cut && ::ftruncate(file.get(), whole) != 0) return failure("repair", path, errno);
  return scanner;
}

}  // namespace

tl::expected<KnownRows, std::string> CsvFile::find_rows(const fs::path& path) {
  auto scanner = scan_rows(path, PartOfARow::cut);
  if (!scanner) return tl::unexpected(std::move(scanner.error()));
  return scanner->rows();
}

tl::expected<SamplesByStep, std::string> CsvFile::find_samples(const fs::path& path) {
  auto scanner = scan_rows(path, PartOfARow::leave);
  if (!scanner) return tl::unexpected(std::move(scanner.error()));
  return scanner->samples();
}

tl::expected<CsvFile::Outcome, std::string> CsvFile::append(const fs::path& path, std::string_view header,
                                                            std::string_view rows) {
  Descriptor file(::open(path.c_str(), O_RDWR | O_APPEND | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0 && errno == ENOENT) return create(path, header, rows);
  struct stat seen {};
  if (file.get() < 0 || ::fstat(file.get(), &seen) != 0) return failure("open", path, errno);
  if (!S_ISREG(seen.st_mode)) return tl::unexpected(path.string() + " is not a regular file");

  off_t valid_bytes = seen.st_size;
  const bool unchanged = seen.st_ino == inode_ && seen.st_size == size_ && header == header_;
  if (!unchanged) {
    const Extent extent = scan(file.get(), header);
    if (extent.valid_bytes < 0) return failure("read", path, errno);
    if (extent.first_line.size() > header.size()) return Outcome::other_header;
    if (extent.valid_bytes == 0) return create(path, header, rows);
    if (extent.first_line != header) return Outcome::other_header;
    valid_bytes = extent.valid_bytes;
  }
  inode_ = 0;
  if (valid_bytes != seen.st_size && ::ftruncate(file.get(), valid_bytes) != 0)
    return failure("repair", path, errno);
  if (!write_all(file.get(), rows)) {
    auto error = failure("write", path, errno);
    // If this fails too, the next call finds the partial row and cuts it off.
    if (::ftruncate(file.get(), valid_bytes) != 0) error.value() += " (a partial row remains)";
    return error;
  }
  if (!file.close()) {
    auto error = failure("write", path, errno);
    if (::truncate(path.c_str(), valid_bytes) != 0) error.value() += " (the rows may remain)";
    return error;
  }
  remember(seen.st_ino, valid_bytes + static_cast<off_t>(rows.size()), header);
  return Outcome::written;
}

tl::expected<CsvFile::Outcome, std::string> CsvFile::create(const fs::path& path, std::string_view header,
                                                            std::string_view rows) {
  inode_ = 0;
  const fs::path temporary = path.parent_path() / ("." + path.filename().string() + ".new");
  Descriptor file(open_new(temporary));
  if (!file.valid() && errno == ENOENT) {
    if (auto made = make_directories(path.parent_path()); !made)
      return tl::unexpected(std::move(made.error()));
    file.reset(open_new(temporary));
  }
  struct stat seen {};
  if (file.get() < 0 || ::fstat(file.get(), &seen) != 0) return failure("make", path, errno);
  if (!write_all(file.get(), header) || !write_all(file.get(), rows) || !file.close() ||
      ::rename(temporary.c_str(), path.c_str()) != 0) {
    auto error = failure("write", path, errno);
    ::unlink(temporary.c_str());
    return error;
  }
  remember(seen.st_ino, static_cast<off_t>(header.size() + rows.size()), header);
  return Outcome::written;
}

void CsvFile::remember(ino_t inode, off_t size, std::string_view header) {
  inode_ = inode;
  size_ = size;
  header_ = header;
}

}  // namespace gradmon

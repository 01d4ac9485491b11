// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/csv_sink.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <system_error>

#include "control/files/descriptor.h"
#include "control/files/file_access.h"
#include "control/text/output_names.h"
#include "writers/sinks/csv_text.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

int open_new(const fs::path& path) {
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0640);
}

struct Extent {
  std::string first_line;
  off_t valid_bytes = 0;  // through the last line end outside quotes
};

bool is_compressed(const fs::path& path) { return path.extension() == ".zst"; }

// As scan(). A frame has whole rows, and the first one the header.
tl::expected<Extent, std::string> scan_frames(int fd, std::string_view header) {
  Extent extent;
  bool is_first = true;
  const auto end = read_frames(fd, [&](std::string_view text) {
    if (is_first) extent.first_line = text.substr(0, std::min(text.find('\n'), header.size()) + 1);
    is_first = false;
  });
  if (!end) return tl::unexpected(end.error());
  extent.valid_bytes = *end;
  return extent;
}

// The error is why the file cannot be read. Stops reading at a first line that is longer than `header`.
tl::expected<Extent, std::string> scan(int fd, std::string_view header) {
  Extent extent;
  std::array<char, 65536> block;
  bool quoted = false;
  bool in_first = true;
  off_t at = 0;
  for (;;) {
    const ssize_t n = ::pread(fd, block.data(), block.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return tl::unexpected(std::generic_category().message(errno));
    if (n == 0) return extent;
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

// Both return the end of the last whole row or frame.
tl::expected<off_t, std::string> scan_rows_of_frames(int fd, CsvRowScanner& scanner) {
  return read_frames(fd, [&](std::string_view text) { scanner.take(text); });
}

tl::expected<off_t, std::string> scan_text(int fd, CsvRowScanner& scanner) {
  std::vector<char> block(std::size_t{1} << 18U);
  for (off_t at = 0;;) {
    const ssize_t n = ::pread(fd, block.data(), block.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return tl::unexpected(std::generic_category().message(errno));
    if (n == 0) return static_cast<off_t>(scanner.whole_bytes());
    scanner.take({block.data(), static_cast<std::size_t>(n)});
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
  if (file.get() < 0 || ::fstat(file.get(), &seen) != 0) return path_error("open", path, errno);
  if (!S_ISREG(seen.st_mode)) return tl::unexpected(path.string() + " is not a regular file");
  const auto whole =
      is_compressed(path) ? scan_rows_of_frames(file.get(), scanner) : scan_text(file.get(), scanner);
  if (!whole) return tl::unexpected("cannot read " + path.string() + ": " + whole.error());
  const bool cut = part == PartOfARow::cut && *whole != seen.st_size;
  if (cut && ::ftruncate(file.get(), *whole) != 0) return path_error("repair", path, errno);
  return scanner;
}

char* write_integer(char* at, std::int64_t value) { return std::to_chars(at, at + 24, value).ptr; }

char* write_text(char* at, std::string_view text) {
  std::memcpy(at, text.data(), text.size());
  return at + text.size();
}

// The number of the columns that identify a row in its file: up to the step or the micro step.
std::size_t key_columns(const std::vector<RowColumn>& columns) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const RowColumn::Source source = columns[i].source;
    if (source == RowColumn::Source::step || source == RowColumn::Source::micro_step) count = i + 1;
  }
  return count;
}

off_t size_of(const std::array<std::string_view, 2>& bytes) {
  return static_cast<off_t>(bytes[0].size() + bytes[1].size());
}

constexpr std::size_t kMostFilesForSamples = 1000;
constexpr std::uint64_t kMostBeside = 100;  // numbers tried for a file with other columns

}  // namespace

void CsvRowScanner::take(std::string_view bytes) {
  for (const char c : bytes) {
    ++bytes_;
    if (c == '"') quoted_ = !quoted_;
    if (!quoted_ && c == '\n') {
      end_line();
    } else if (!quoted_ && c == ',') {
      end_cell();
    } else if (in_header_ || column_ < key_columns_ || column_ == samples_column_) {
      cell_ += c;
    }
  }
}

void CsvRowScanner::end_cell() {
  if (in_header_) {
    if (cell_ == "step") step_column_ = column_;
    if (cell_ == "samples") samples_column_ = column_;
    if (cell_ == "step" || cell_ == "micro_step") key_columns_ = column_ + 1;
  } else if (column_ < key_columns_) {
    if (column_ > 0) key_ += ',';
    key_ += cell_;
    if (column_ == step_column_) std::from_chars(cell_.data(), cell_.data() + cell_.size(), step_);
  } else if (column_ == samples_column_) {
    std::from_chars(cell_.data(), cell_.data() + cell_.size(), counted_);
  }
  cell_.clear();
  ++column_;
}

void CsvRowScanner::end_line() {
  end_cell();
  if (!in_header_ && step_ >= 0) {
    rows_.add(step_, std::move(key_));
    if (counted_ > 0) samples_[step_] = counted_;
  }
  in_header_ = false;
  column_ = 0;
  step_ = -1;
  counted_ = 0;
  key_.clear();
  whole_bytes_ = bytes_;
}

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
  if (file.get() < 0 || ::fstat(file.get(), &seen) != 0) return path_error("open", path, errno);
  if (!S_ISREG(seen.st_mode)) return tl::unexpected(path.string() + " is not a regular file");

  off_t valid_bytes = seen.st_size;
  const bool unchanged = seen.st_ino == inode_ && seen.st_size == size_ && header == header_;
  if (!unchanged) {
    const auto extent = is_compressed(path) ? scan_frames(file.get(), header) : scan(file.get(), header);
    if (!extent) return tl::unexpected("cannot read " + path.string() + ": " + extent.error());
    if (extent->first_line.size() > header.size()) return Outcome::other_header;
    if (extent->valid_bytes == 0) return create(path, header, rows);
    if (extent->first_line != header) return Outcome::other_header;
    valid_bytes = extent->valid_bytes;
  }
  inode_ = 0;
  const auto bytes = encoded(path, "", rows);
  if (!bytes) return tl::unexpected(bytes.error());
  if (valid_bytes != seen.st_size && ::ftruncate(file.get(), valid_bytes) != 0)
    return path_error("repair", path, errno);
  if (!write_all(file.get(), (*bytes)[0]) || !write_all(file.get(), (*bytes)[1])) {
    auto error = path_error("write", path, errno);
    // If this fails too, the next call finds the partial row and cuts it off.
    if (::ftruncate(file.get(), valid_bytes) != 0) error.value() += " (a partial row remains)";
    return error;
  }
  if (!file.close()) {
    auto error = path_error("write", path, errno);
    if (::truncate(path.c_str(), valid_bytes) != 0) error.value() += " (the rows may remain)";
    return error;
  }
  remember(seen.st_ino, valid_bytes + size_of(*bytes), header);
  return Outcome::written;
}

tl::expected<CsvFile::Outcome, std::string> CsvFile::create(const fs::path& path, std::string_view header,
                                                            std::string_view rows) {
  inode_ = 0;
  const auto bytes = encoded(path, header, rows);
  if (!bytes) return tl::unexpected(bytes.error());
  const fs::path temporary = path.parent_path() / ("." + path.filename().string() + ".new");
  Descriptor file(open_new(temporary));
  if (!file.valid() && errno == ENOENT) {
    if (auto made = make_directories(path.parent_path()); !made)
      return tl::unexpected(std::move(made.error()));
    file.reset(open_new(temporary));
  }
  struct stat seen {};
  if (file.get() < 0 || ::fstat(file.get(), &seen) != 0) return path_error("make", path, errno);
  if (!write_all(file.get(), (*bytes)[0]) || !write_all(file.get(), (*bytes)[1]) || !file.close() ||
      ::rename(temporary.c_str(), path.c_str()) != 0) {
    auto error = path_error("write", path, errno);
    ::unlink(temporary.c_str());
    return error;
  }
  remember(seen.st_ino, size_of(*bytes), header);
  return Outcome::written;
}

tl::expected<CsvFile::Bytes, std::string> CsvFile::encoded(const fs::path& path, std::string_view header,
                                                           std::string_view rows) {
  if (!is_compressed(path)) return Bytes{header, rows};
  const auto frame = compressor_.compress(header, rows);
  if (!frame) return tl::unexpected("cannot write " + path.string() + ": " + frame.error());
  return Bytes{*frame, ""};
}

void CsvFile::remember(ino_t inode, off_t size, std::string_view header) {
  inode_ = inode;
  size_ = size;
  header_ = header;
}

CsvSink::CsvSink(std::function<std::filesystem::path()> directory, std::shared_ptr<const NameTable> names,
                 Resume resume)
    : directory_of_run_(std::move(directory)), names_(std::move(names)), resume_(resume) {}

tl::expected<void, SinkError> CsvSink::begin_revision(const Layout& layout) {
  layout_ = layout;
  if (auto directory = directory_of_run_(); directory != directory_) {
    directory_ = std::move(directory);
    earlier_files_.reset();
  }
  for (std::size_t kind = 0; kind < kKinds; ++kind) {
    Output& output = outputs_[kind] = Output{};
    output.columns = columns_of(static_cast<Kind>(kind), layout);
    output.header = csv_header(output.columns);
    output.key_columns = key_columns(output.columns);
  }
  return {};
}

tl::expected<void, SinkError> CsvSink::write_step(Step step, const RecordBatch& records) {
  SinkError error;
  records.each_kind([&](Kind kind, RecordBatch::Iterator begin, RecordBatch::Iterator end) {
    const auto rows = static_cast<std::uint64_t>(end - begin);
    if (auto written = write_kind(kind, step, begin, end); !written) {
      error.rows_lost += rows;
      error.text = std::move(written.error());
    }
    const auto rest = static_cast<std::uint64_t>(records.end() - end);
    if (rest == 0 || !on_part_ || on_part_(kind, rows)) return true;
    error.rows_lost += rest;
    error.text = "rest of step " + std::to_string(step.value) + " not written: stop() timed out";
    return false;
  });
  if (!error.text.empty()) return tl::unexpected(std::move(error));
  return {};
}

tl::expected<void, std::string> CsvSink::write_kind(Kind kind, Step step, RecordBatch::Iterator begin,
                                                    RecordBatch::Iterator end) {
  Output& output = outputs_[static_cast<std::size_t>(kind)];
  const std::int64_t first_step = step.value - step.value % layout_.step_count_per_record;
  if (output.first_step != first_step) {
    if (auto opened = open(output, kind, first_step); !opened) return opened;
  }
  collect_rows(output, begin, end);
  if (rows_.empty()) return {};
  auto outcome = output.file.append(output.path, output.header, rows_.text());
  if (outcome == CsvFile::Outcome::other_header) outcome = append_beside(output, kind, first_step);
  if (!outcome) return tl::unexpected(std::move(outcome.error()));
  if (*outcome == CsvFile::Outcome::written) return {};
  return tl::unexpected(output.path.string() +
                        " has different columns than this revision; rename or remove it");
}

tl::expected<void, std::string> CsvSink::open(Output& output, Kind kind, std::int64_t first_step) {
  output.first_step = -1;
  output.path = make_path(kind, first_step, "");
  output.known.clear();
  if (resume_ == Resume::yes) {
    if (auto found = find_known_rows(output, kind, first_step); !found) return found;
  }
  output.first_step = first_step;
  return {};
}

tl::expected<void, std::string> CsvSink::find_known_rows(Output& output, Kind kind, std::int64_t first_step) {
  if (auto listed = list_earlier_files(); !listed || !earlier_files_) return listed;
  const std::int64_t last_step = first_step + layout_.step_count_per_record - 1;
  for (const EarlierFile& file : (*earlier_files_)[static_cast<std::size_t>(kind)]) {
    if (file.first_step > last_step || file.last_step < first_step) continue;
    auto known = CsvFile::find_rows(file.path);
    if (!known) return tl::unexpected(std::move(known.error()));
    output.known.push_back(std::move(*known));
  }
  return {};
}

tl::expected<void, std::string> CsvSink::list_earlier_files() {
  if (earlier_files_) return {};
  auto files = files_in(directory_);
  if (!files) return tl::unexpected(std::move(files.error()));
  earlier_files_ = std::move(*files);
  return {};
}

tl::expected<std::optional<CsvSink::EarlierFiles>, std::string> CsvSink::files_in(
    const std::filesystem::path& directory) {
  EarlierFiles files;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const auto file = parse_kind_file(entry->path().filename().string());
    if (file)
      files[static_cast<std::size_t>(file->kind)].push_back(
          {file->first_step, file->last_step, entry->path()});
  }
  if (error == std::errc::no_such_file_or_directory) return std::nullopt;
  if (error) return tl::unexpected("cannot read " + directory.string() + ": " + error.message());
  return files;
}

tl::expected<SamplesByStep, std::string> CsvSink::find_samples(const std::filesystem::path& directory,
                                                               std::int64_t from) {
  SamplesByStep samples;
  auto listed = files_in(directory);
  if (!listed) return tl::unexpected(std::move(listed.error()));
  if (!*listed) return samples;
  std::vector<EarlierFile>& files = (**listed)[static_cast<std::size_t>(Kind::scalar)];
  std::sort(files.begin(), files.end(),
            [](const EarlierFile& a, const EarlierFile& b) { return a.last_step > b.last_step; });
  for (std::size_t i = 0; i < std::min(files.size(), kMostFilesForSamples); ++i) {
    if (!samples.empty() && files[i].last_step < samples.begin()->first && samples.begin()->first < from)
      break;
    auto found = CsvFile::find_samples(files[i].path);
    if (!found) return tl::unexpected(std::move(found.error()));
    samples.merge(*found);
  }
  return samples;
}

// Revisions are counted within a job, so an earlier job may have a file of the same name. Then takes the next
// number.
tl::expected<CsvFile::Outcome, std::string> CsvSink::append_beside(Output& output, Kind kind,
                                                                   std::int64_t first_step) {
  tl::expected<CsvFile::Outcome, std::string> outcome = CsvFile::Outcome::other_header;
  const std::uint64_t most = resume_ == Resume::yes ? kMostBeside : 1;
  for (std::uint64_t i = 0; i < most && outcome == CsvFile::Outcome::other_header; ++i) {
    output.path = make_path(kind, first_step, ".r" + std::to_string(layout_.revision.value + i));
    outcome = output.file.append(output.path, output.header, rows_.text());
  }
  return outcome;
}

std::filesystem::path CsvSink::make_path(Kind kind, std::int64_t first_step,
                                         const std::string& suffix) const {
  return directory_ / (std::string(name_of(kind)) + "_" + std::to_string(first_step) + "-" +
                       std::to_string(first_step + layout_.step_count_per_record - 1) + suffix +
                       (layout_.compress ? ".csv.zst" : ".csv"));
}

void CsvSink::collect_rows(const Output& output, RecordBatch::Iterator begin, RecordBatch::Iterator end) {
  rows_.clear();
  for (; begin != end; ++begin) append_row(*begin, output);
}

void CsvSink::append_row(const Record& record, const Output& output) {
  cell_text(std::max(record.target, record.shape));  // makes both, so that neither moves
  const Text& target = cell_text(record.target);
  const Text& shape = cell_text(record.shape);
  const std::size_t room = output.columns.size() * kNumberRoom + target.cell.size() + shape.cell.size();
  char* const begin = rows_.room(room);
  char* at = begin;
  char* key_end = begin;
  for (std::size_t i = 0; i < output.columns.size(); ++i) {
    at = write_cell(at, record, output.columns[i], target, shape);
    if (i + 1 == output.key_columns) key_end = at;
    *at++ = ',';
  }
  at[-1] = '\n';
  const auto has_it = [&](const KnownRows& known) {
    return known.has_step(record.step) && known.has(record.step, std::string(begin, key_end));
  };
  if (!std::any_of(output.known.begin(), output.known.end(), has_it)) rows_.extend_to(at);
}

char* CsvSink::write_cell(char* at, const Record& record, const RowColumn& column, const Text& target,
                          const Text& shape) const {
  using Source = RowColumn::Source;
  switch (column.source) {
    case Source::vpp_stage:
      return write_integer(at, target.vpp_stage);
    case Source::name:
      return write_text(at, target.cell);
    case Source::step:
      return write_integer(at, record.step);
    case Source::micro_step:
      return write_integer(at, record.micro_step);
    case Source::number:
      if (!column.is_in(record)) return at;
      return layout_.digits > 0 ? write_significant(at, record.values[column.value], layout_.digits)
                                : write_number(at, record.values[column.value], layout_.ndigits);
    case Source::count:
      return column.is_in(record) ? write_count(at, record.values[column.value]) : at;
    case Source::shape:
      return write_text(at, shape.cell);
    case Source::dtype:
      return write_text(at, name_of(record.dtype));
  }
  return at;
}

const CsvSink::Text& CsvSink::cell_text(std::uint32_t id) {
  if (id >= texts_.size()) {
    for (std::size_t next = texts_.size(); next < names_->size(); ++next) {
      const auto known = static_cast<std::uint32_t>(next);
      texts_.push_back({names_->vpp_stage(known), ""});
      append_cell(texts_.back().cell, names_->name(known));
    }
  }
  return texts_[id < texts_.size() ? id : 0];
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/event_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>

#include "control/files/file_access.h"
#include "writers/sinks/event.pb.h"
#include "writers/sinks/event_records.h"
#include "writers/sinks/row_encoder.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "events.out.tfevents.";
constexpr std::int64_t kLatest = 9'999'999'999;  // times have ten digits, so that names sort by time
constexpr int kCreateAttempts = 100;

struct Progress {
  std::size_t bytes = 0;  // written
  int error = 0;
};

Progress write_as_much_as_possible(int fd, std::string_view bytes) {
  Progress progress;
  while (progress.bytes < bytes.size()) {
    const ssize_t put = ::write(fd, bytes.data() + progress.bytes, bytes.size() - progress.bytes);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) {
      progress.error = put < 0 ? errno : ENOSPC;
      return progress;
    }
    progress.bytes += static_cast<std::size_t>(put);
  }
  return progress;
}

// The time in the name of an event file; -1 if it has no time, or if no name sorts after it.
std::int64_t time_in(std::string_view name) {
  if (name.substr(0, kPrefix.size()) != kPrefix) return -1;
  std::int64_t time = -1;
  std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), time);
  return time < kLatest ? time : -1;
}

// True if open() failed because a file is gone, or is now a link, a pipe or a directory.
bool has_been_replaced(int error) {
  return error == ENOENT || error == ENOTDIR || error == ELOOP || error == ENXIO || error == EISDIR;
}

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  std::string host = name;
  const auto is_odd = [](char c) { return c == '/' || static_cast<unsigned char>(c) <= ' '; };
  std::replace_if(host.begin(), host.end(), is_odd, '_');
  return host;
}

// Above the bound of EventFiles, which a single large row may exceed. Other programs' files may have any
// size.
constexpr std::uint64_t kMostBytesOfAFile = 2 * EventFiles::kBytesOfAFile;

constexpr std::size_t kMostFilesForSamples = 16;

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

std::optional<tensorboard::Event> parse(std::string_view data) {
  tensorboard::Event event;
  if (!event.ParseFromArray(data.data(), static_cast<int>(data.size()))) return std::nullopt;
  return event;
}

std::string first_tag(const tensorboard::Event& event) {
  if (event.summary().value_size() == 0) return "";
  const auto& value = event.summary().value(0);
  return value.has_tensor() ? "" : value.tag();
}

// The first event names the writer; files of older releases and of some other programs name none.
bool is_ours(const fs::path& path, std::string_view bytes) {
  const auto data = first_record(bytes);
  const auto event = data ? parse(*data) : std::nullopt;
  if (!event || event->source_metadata().writer().empty()) return is_named_as_ours(path.filename().string());
  return event->source_metadata().writer() == kEventWriter;
}

// The treatment of bytes after the last whole record.
enum class Tail : bool { leave, cut };
// nullopt: the file is not gradmon's, and stays unchanged.
tl::expected<std::optional<KnownEvents>, std::string> read_events(const fs::path& path, Tail tail) {
  const int access = tail == Tail::cut ? O_RDWR : O_RDONLY;
  const Descriptor file(::open(path.c_str(), access | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat seen {};
  if (file.get() < 0 || ::fstat(file.get(), &seen) != 0) return path_error("open", path, errno);
  if (!S_ISREG(seen.st_mode) || static_cast<std::uint64_t>(seen.st_size) > kMostBytesOfAFile)
    return std::nullopt;
  std::string bytes(static_cast<std::size_t>(seen.st_size), '\0');
  std::size_t read = 0;
  while (read < bytes.size()) {
    const ssize_t n = ::pread(file.get(), bytes.data() + read, bytes.size() - read, static_cast<off_t>(read));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return path_error("read", path, errno);
    if (n == 0) break;
    read += static_cast<std::size_t>(n);
  }
  bytes.resize(read);
  if (!is_ours(path, bytes)) return std::nullopt;
  KnownEvents events = find_events(bytes);
  const bool torn = events.whole_bytes < bytes.size();
  if (torn && tail == Tail::cut && ::ftruncate(file.get(), static_cast<off_t>(events.whole_bytes)) != 0)
    return path_error("repair", path, errno);
  return events;
}

}  // namespace

tl::expected<std::vector<fs::path>, std::string> list_event_files(const fs::path& directory) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    if (time_in(entry->path().filename().string()) >= 0) files.push_back(entry->path());
  }
  if (error && error != std::errc::no_such_file_or_directory)
    return tl::unexpected("cannot read " + directory.string() + ": " + error.message());
  std::sort(files.begin(), files.end());
  return files;
}

bool is_named_as_ours(const std::string& file_name) {
  const auto is_number = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  };
  std::string_view host = file_name;
  const std::size_t end_of_time = host.find('.', kPrefix.size());
  if (time_in(host) < 0 || end_of_time == std::string_view::npos) return false;
  host.remove_prefix(end_of_time + 1);
  const std::size_t dot = host.rfind('.');
  if (dot == std::string_view::npos || !is_number(host.substr(dot + 1))) return false;
  host = host.substr(0, dot);
  return host == host_name() || !is_number(host.substr(host.rfind('.') + 1));
}

std::string next_event_file(const fs::path& directory, std::int64_t time) {
  std::error_code ignored;
  for (fs::directory_iterator entry(directory, ignored), end; entry != end; entry.increment(ignored)) {
    time = std::max(time, time_in(entry->path().filename().string()) + 1);
  }
  std::string digits = std::to_string(time);
  digits.insert(0, digits.size() < 10 ? 10 - digits.size() : 0, '0');
  return std::string(kPrefix) + digits + "." + host_name() + "." + std::to_string(::getpid());
}

EventFiles::Outcome EventFiles::append(const fs::path& directory, const std::string& head,
                                       const EventRows& rows) {
  auto file = open(directory, head, rows.bytes.size());
  if (!file) return {0, std::move(file.error())};
  const Progress progress = write_as_much_as_possible(file->get(), rows.bytes);
  if (progress.error != 0) return cut_off(file->get(), progress.bytes, rows, progress.error);
  if (!file->close()) {
    Outcome outcome{0, path_error("write", path_, errno).value()};
    if (::truncate(path_.c_str(), static_cast<off_t>(size_)) != 0) path_.clear();
    return outcome;
  }
  size_ += rows.bytes.size();
  return {rows.ends.size(), ""};
}

// The current file, if it can be continued, or a new one.
tl::expected<Descriptor, std::string> EventFiles::open(const fs::path& directory, const std::string& head,
                                                       std::size_t bytes) {
  const bool full = size_ + bytes > most_bytes_ && size_ > head_size_;
  if (path_.empty() || path_.parent_path() != directory || full) return create(directory, head);
  Descriptor file(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat seen {};
  if (file.valid() && ::fstat(file.get(), &seen) != 0) return path_error("open", path_, errno);
  if (!file.valid() && !has_been_replaced(errno)) return path_error("open", path_, errno);
  const bool unchanged = file.valid() && seen.st_dev == device_ && seen.st_ino == inode_ &&
                         static_cast<std::uint64_t>(seen.st_size) == size_;
  if (!unchanged) return create(directory, head);
  return file;
}

tl::expected<Descriptor, std::string> EventFiles::create(const fs::path& directory, const std::string& head) {
  path_.clear();
  if (auto made = make_directories(directory); !made) return tl::unexpected(std::move(made.error()));
  fs::path path;
  Descriptor file;
  for (int attempt = 0; attempt < kCreateAttempts && !file.valid(); ++attempt) {
    path = directory / next_event_file(directory, static_cast<std::int64_t>(std::time(nullptr)) + attempt);
    file.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0640));
    if (!file.valid() && errno != EEXIST) break;
  }
  struct stat seen {};
  if (!file.valid()) return path_error("make", path, errno);
  Progress progress;
  if (::fstat(file.get(), &seen) != 0) progress.error = errno;
  if (progress.error == 0) progress = write_as_much_as_possible(file.get(), head);
  if (progress.error != 0) {
    ::unlink(path.c_str());
    return path_error("write", path, progress.error);
  }
  path_ = std::move(path);
  device_ = seen.st_dev;
  inode_ = seen.st_ino;
  size_ = head_size_ = head.size();
  return file;
}

// Call it after an incomplete write: cuts the file after the last whole row.
EventFiles::Outcome EventFiles::cut_off(int fd, std::size_t bytes_written, const EventRows& rows, int error) {
  const auto next = std::upper_bound(rows.ends.begin(), rows.ends.end(), bytes_written);
  const std::size_t whole = next == rows.ends.begin() ? 0 : *std::prev(next);
  Outcome outcome{static_cast<std::size_t>(next - rows.ends.begin()),
                  path_error("write", path_, error).value()};
  size_ += whole;
  if (bytes_written > whole && ::ftruncate(fd, static_cast<off_t>(size_)) != 0) {
    outcome.error += " (a partial record remains)";
    path_.clear();
  }
  return outcome;
}

std::string tag_of_event(std::string_view data) {
  const auto event = parse(data);
  return event ? first_tag(*event) : "";
}

KnownEvents find_events(std::string_view bytes) {
  KnownEvents events;
  std::int64_t step = -1;
  while (const auto data = first_record(bytes)) {
    bytes.remove_prefix(size_of_record(*data));
    events.whole_bytes += size_of_record(*data);
    const auto event = parse(*data);
    if (!event) continue;
    std::string tag = first_tag(*event);
    if (tag.empty()) continue;
    if (!ends_with(tag, kOverSamples)) {
      step = event->step();
    } else if (step >= 0 && event->step() > 0) {
      events.samples[step] = event->step();
    }
    events.greatest_step = std::max(events.greatest_step, step);
    events.rows.add(step, std::move(tag));
  }
  return events;
}

tl::expected<std::vector<KnownRows>, std::string> find_events_in(const fs::path& directory,
                                                                 std::int64_t from) {
  std::vector<KnownRows> all;
  const auto files = list_event_files(directory);
  if (!files) return tl::unexpected(files.error());
  for (auto file = files->rbegin(); file != files->rend(); ++file) {
    auto read = read_events(*file, all.empty() ? Tail::cut : Tail::leave);
    if (!read) return tl::unexpected(std::move(read.error()));
    if (!*read) continue;
    KnownEvents& events = **read;
    const bool earlier = events.greatest_step >= 0 && events.greatest_step < from;
    all.push_back(std::move(events.rows));
    if (earlier) break;
  }
  return all;
}

tl::expected<SamplesByStep, std::string> find_samples_in_events(const fs::path& directory,
                                                                std::int64_t from) {
  SamplesByStep samples;
  auto files = list_event_files(directory);
  if (!files) return tl::unexpected(std::move(files.error()));
  for (std::size_t i = 0; i < std::min(files->size(), kMostFilesForSamples); ++i) {
    auto read = read_events((*files)[files->size() - 1 - i], Tail::leave);
    if (!read) return tl::unexpected(std::move(read.error()));
    if (*read) samples.merge((*read)->samples);
    if (!samples.empty() && samples.begin()->first < from) break;
  }
  return samples;
}

}  // namespace gradmon

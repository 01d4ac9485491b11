// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/tensorboard/known_events.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <system_error>
#include <utility>

#include "control/files/descriptor.h"
#include "writers/sinks/tensorboard/event.pb.h"
#include "writers/sinks/tensorboard/event_files.h"
#include "writers/sinks/tensorboard/record_framing.h"
#include "writers/sinks/tensorboard/tags.h"
#include "writers/sinks/tensorboard/text_event.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

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

std::string tag_of(const tensorboard::Event& event) {
  if (event.summary().value_size() == 0) return "";
  const auto& value = event.summary().value(0);
  return value.has_tensor() ? "" : value.tag();
}

tl::unexpected<std::string> read_failure(const char* verb, const fs::path& path, int error) {
  return tl::unexpected("cannot " + std::string(verb) + " " + path.string() + ": " +
                        std::system_category().message(error));
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
  if (file.get() < 0 || ::fstat(file.get(), &seen) != 0) return read_failure("open", path, errno);
  if (!S_ISREG(seen.st_mode) || static_cast<std::uint64_t>(seen.st_size) > kMostBytesOfAFile)
    return std::nullopt;
  std::string bytes(static_cast<std::size_t>(seen.st_size), '\0');
  std::size_t read = 0;
  while (read < bytes.size()) {
    const ssize_t n = ::pread(file.get(), bytes.data() + read, bytes.size() - read, static_cast<off_t>(read));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return read_failure("read", path, errno);
    if (n == 0) break;
    read += static_cast<std::size_t>(n);
  }
  bytes.resize(read);
  if (!is_ours(path, bytes)) return std::nullopt;
  KnownEvents events = find_events(bytes);
  const bool torn = events.whole_bytes < bytes.size();
  if (torn && tail == Tail::cut && ::ftruncate(file.get(), static_cast<off_t>(events.whole_bytes)) != 0)
    return read_failure("repair", path, errno);
  return events;
}

}  // namespace

std::string tag_of_event(std::string_view data) {
  const auto event = parse(data);
  return event ? tag_of(*event) : "";
}

KnownEvents find_events(std::string_view bytes) {
  KnownEvents events;
  std::int64_t step = -1;
  while (const auto data = first_record(bytes)) {
    bytes.remove_prefix(size_of_record(*data));
    events.whole_bytes += size_of_record(*data);
    const auto event = parse(*data);
    if (!event) continue;
    std::string tag = tag_of(*event);
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
  const auto files = event_files_of(directory);
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
  auto files = event_files_of(directory);
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

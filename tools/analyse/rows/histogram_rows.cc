// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/rows/histogram_rows.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <system_error>
#include <utility>

#include "writers/sinks/event.pb.h"
#include "writers/sinks/event_records.h"

namespace gradmon {

namespace fs = std::filesystem;

EventFile::EventFile(fs::path path, Problems& problems)
    : path_(std::move(path)),
      problems_(problems),
      file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {
  struct stat status {};
  if (!file_.valid() || ::fstat(file_.get(), &status) != 0) {
    give_up(std::string("cannot open: ") + std::strerror(errno));
  } else if (!S_ISREG(status.st_mode)) {
    give_up("not a regular file");
  } else {
    size_ = static_cast<std::uint64_t>(status.st_size);
  }
}

bool EventFile::next(std::string_view& event) {
  if (!file_.valid() || !read(kRecordHeaderBytes)) return false;
  const auto length = record_length(buffer_);
  if (!length) return give_up("byte " + std::to_string(offset_) + ": not the header of a record");
  if (*length > kMaxRecordBytes)
    return give_up("byte " + std::to_string(offset_) + ": a record of " + std::to_string(*length) +
                   " bytes; expected at most " + std::to_string(kMaxRecordBytes));
  const std::uint64_t rest = *length + kRecordFooterBytes;
  const bool torn = offset_ + kRecordHeaderBytes + rest > size_;
  if (torn) file_.reset();
  if (torn || !read(rest)) return false;
  event = std::string_view(buffer_).substr(0, *length);
  if (!is_footer_of(event, std::string_view(buffer_).substr(*length)))
    return give_up("byte " + std::to_string(offset_) + ": the checksum of a record is wrong");
  offset_ += kRecordHeaderBytes + rest;
  return true;
}

// Reads into buffer_. Closes the file and returns false if it ends early or cannot be read.
bool EventFile::read(std::uint64_t bytes) {
  buffer_.resize(bytes);
  std::size_t filled = 0;
  while (filled < bytes) {
    const ssize_t got = ::read(file_.get(), buffer_.data() + filled, bytes - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return give_up(std::string("cannot read: ") + std::strerror(errno));
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  if (filled < bytes) file_.reset();
  return filled == bytes;
}

bool EventFile::give_up(const std::string& problem) {
  problems_.add(path_, 0, problem + "; the rest of the file is left out");
  file_.reset();
  return false;
}

std::vector<fs::path> event_files_of(const fs::path& rank_directory, Problems& problems) {
  const fs::path directory = rank_directory / "tensorboard";
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().filename().string().find("tfevents") != std::string::npos)
      files.push_back(entry->path());
  }
  if (error && error != std::errc::no_such_file_or_directory)
    problems.add(directory, 0, "cannot be read: " + error.message());
  std::sort(files.begin(), files.end());
  return files;
}

namespace {

template <typename Number>
bool parse(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number >= 0;
}

bool parse_tag_by_kind(std::string_view tag, HistogramRow& row) {
  const std::size_t slash = std::min(tag.find('/'), tag.size());
  for (std::size_t i = kRecordKinds; i < kKinds; ++i) {
    if (tag.substr(0, slash) != kKindNames[i] || slash == tag.size()) continue;
    row.kind = static_cast<Kind>(i);
    row.name = tag.substr(slash + 1);
    const std::size_t colon = row.name.find(':');
    if (colon != std::string::npos && parse(row.name.substr(0, colon), row.vpp_stage))
      row.name.erase(0, colon + 1);
    return true;
  }
  return false;
}

bool parse_msprobe_tag(std::string_view tag, HistogramRow& row) {
  constexpr std::string_view kRank = "/rank";
  const std::size_t colon = tag.find(':'), rank = tag.rfind(kRank), kind = tag.rfind('/');
  if (colon == std::string_view::npos || rank == std::string_view::npos || rank < colon || kind <= rank)
    return false;
  const std::size_t after_rank = rank + kRank.size();
  row.name = tag.substr(colon + 1, rank - colon - 1);
  for (std::size_t i = kRecordKinds; i < kKinds; ++i) {
    row.kind = static_cast<Kind>(i);
    if (tag.substr(kind + 1) == kKindNames[i])
      return parse(tag.substr(0, colon), row.vpp_stage) &&
             parse(tag.substr(after_rank, kind - after_rank), row.rank);
  }
  return false;
}

bool copy_counts(const tensorboard::HistogramProto& histogram, HistogramRow& row) {
  if (histogram.bucket_size() != static_cast<int>(kBins)) return false;
  for (std::size_t bin = 0; bin < kBins; ++bin) {
    const double count = histogram.bucket(static_cast<int>(bin));
    if (!std::isfinite(count) || count < 0) return false;
    row.counts[bin] = count;
  }
  return true;
}

}  // namespace

std::optional<HistogramRow> histogram_row_of(std::string_view data, int rank) {
  tensorboard::Event event;
  if (!event.ParseFromArray(data.data(), static_cast<int>(data.size()))) return std::nullopt;
  if (event.step() < 0 || event.summary().value_size() != 1) return std::nullopt;
  const tensorboard::Summary::Value& value = event.summary().value(0);
  HistogramRow row;
  row.step = event.step();
  row.rank = rank;
  const bool tagged = parse_tag_by_kind(value.tag(), row) || parse_msprobe_tag(value.tag(), row);
  if (!tagged || !value.has_histo() || !copy_counts(value.histo(), row)) return std::nullopt;
  return row;
}

}  // namespace gradmon

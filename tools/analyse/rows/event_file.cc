// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/rows/event_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "writers/sinks/tensorboard/record_framing.h"

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

}  // namespace gradmon

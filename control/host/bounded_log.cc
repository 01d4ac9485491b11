// SPDX-License-Identifier: Apache-2.0
#include "control/host/bounded_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string>
#include <utility>

#include "control/files/file_access.h"

namespace gradmon {
namespace {

constexpr std::size_t kLongestLine = 4096;

// Escapes control characters and cuts the text off at `most` bytes. Adds no newline.
std::string one_line(std::string_view text, std::size_t most) {
  constexpr char digits[] = "0123456789abcdef";
  std::string line;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool control = byte < 0x20 || byte == 0x7f;
    if (line.size() + (control ? 4 : 1) > most) break;
    if (control) {
      line += {'\\', 'x', digits[byte >> 4U], digits[byte & 15U]};
    } else {
      line += c;
    }
  }
  return line;
}

}  // namespace

BoundedLog::BoundedLog(fs::path path, std::size_t most_bytes)
    : path_(std::move(path)),
      older_(rotated(path_)),
      most_bytes_(most_bytes),
      longest_line_(std::min(kLongestLine, most_bytes / 2)) {}

void BoundedLog::write(std::string_view line) noexcept {
  const std::lock_guard lock(mutex_);
  bool written = false;
  try {
    written = append(line);
  } catch (...) {  // no memory
  }
  if (!written) dropped_ += 1;
}

bool BoundedLog::append(std::string_view line) {
  if (dropped_ > 0) {
    if (!put("(lines dropped because they could not be written: " + std::to_string(dropped_) + ")\n"))
      return false;
    dropped_ = 0;
  }
  return put(one_line(line, longest_line_) + "\n");
}

bool BoundedLog::put(std::string_view bytes) {
  if (!ready_for(bytes.size())) return false;
  ssize_t written = 0;
  do {
    written = ::write(file_.get(), bytes.data(), bytes.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(bytes.size())) {
    size_ += bytes.size();
    return true;
  }
  // The disk is full: remove the partial line.
  if (written > 0 && ::ftruncate(file_.get(), static_cast<off_t>(size_)) != 0) file_.reset();
  return false;
}

// Opens the file if it is not open or was removed or replaced. Starts a new file if `bytes` more do not
// fit.
bool BoundedLog::ready_for(std::size_t bytes) {
  if (!is_at_path(path_, file_.get()) && !open_file()) return false;
  if (size_ + bytes <= most_bytes_) return true;
  if (std::rename(path_.c_str(), older_.c_str()) != 0) return false;
  return open_file();
}

bool BoundedLog::open_file() {
  file_.reset(::open(path_.c_str(),
                     O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600));
  struct stat found {};
  if (!file_.valid() || ::fstat(file_.get(), &found) != 0 || !S_ISREG(found.st_mode) ||
      found.st_uid != geteuid()) {
    file_.reset();
    return false;
  }
  size_ = static_cast<std::size_t>(found.st_size);
  return true;
}

}  // namespace gradmon

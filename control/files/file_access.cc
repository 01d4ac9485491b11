// SPDX-License-Identifier: Apache-2.0
#include "control/files/file_access.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "control/files/descriptor.h"

namespace gradmon {

Result<void> make_directories(const fs::path& directory) {
  fs::path made;
  for (const fs::path& part : directory) {
    made /= part;
    if (mkdir(made.c_str(), 0750) == 0 || errno == EEXIST || errno == EISDIR) continue;
    const int why = errno;
    std::error_code error;
    if (fs::is_directory(made, error)) continue;  // On a read-only root.
    return path_error("make", made, why);
  }
  return {};
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto put = ::write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

bool read_rest(int fd, std::size_t most, std::string& to) {
  std::array<char, 65'536> buffer;
  while (to.size() <= most) {
    const auto got = ::read(fd, buffer.data(), std::min(buffer.size(), most + 1 - to.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got == 0;
    to.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return true;
}

std::string mode_text(mode_t mode) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%04o", mode & 07777U);
  return text.data();
}

bool ends_within_a_line(int fd) {
  struct stat status {};
  char last = '\n';
  return ::fstat(fd, &status) == 0 && status.st_size > 0 && ::pread(fd, &last, 1, status.st_size - 1) == 1 &&
         last != '\n';
}

fs::path rotated(const fs::path& file) { return file.string() + ".1"; }

std::string make_room(const fs::path& file, std::size_t bytes, std::size_t most_bytes) {
  std::error_code error;
  const auto present = fs::file_size(file, error);
  if (error || present == 0 || present + bytes <= most_bytes) return "";
  const auto older = rotated(file);
  const bool drops = fs::exists(older, error);
  fs::rename(file, older, error);
  return drops && !error
             ? "{\"left_out\": \"the oldest lines, with the earlier " + older.filename().string() + "\"}\n"
             : "";
}

Result<void> write_durably(const fs::path& file, std::string_view bytes) {
  const auto failed = [&](int code) { return path_error("write", file, code); };
  Descriptor opened(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0640));
  if (!opened.valid()) return failed(errno);
  int code = write_all(opened.get(), bytes) && ::fsync(opened.get()) == 0 ? 0 : errno;
  if (!opened.close() && code == 0) code = errno;
  if (code == 0) return {};
  ::unlink(file.c_str());
  return failed(code);
}

Result<void> replace_file(const fs::path& file, std::string_view bytes, mode_t mode) {
  std::string beside = file.string() + ".XXXXXX";
  Descriptor fd(::mkostemp(beside.data(), O_CLOEXEC));
  const bool written = fd.valid() && ::fchmod(fd.get(), mode) == 0 && write_all(fd.get(), bytes) &&
                       ::fsync(fd.get()) == 0 && fd.close() && ::rename(beside.c_str(), file.c_str()) == 0;
  if (written) return {};
  const int code = errno;
  ::unlink(beside.c_str());
  return path_error(file, code);
}

Result<void> sync_directory(const fs::path& directory) {
  const Descriptor opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.valid() && ::fsync(opened.get()) == 0) return {};
  return path_error(directory, errno);
}

Result<std::string> read_checked_file(const fs::path& file, int flags,
                                      const std::function<std::string(const struct stat&)>& objection) {
  const auto failed = [&] { return path_error(file, errno); };
  const Descriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags));
  struct stat status {};
  if (!opened.valid() || fstat(opened.get(), &status) != 0) {
    if (errno == ENXIO) return tl::unexpected(file.string() + ": not a regular file");
    return failed();
  }
  if (std::string why = objection(status); !why.empty()) return tl::unexpected(std::move(why));
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t filled = 0;
  while (filled < text.size()) {
    const ssize_t got = ::read(opened.get(), text.data() + filled, text.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed();
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  text.resize(filled);
  return text;
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "control/aliases.h"

namespace gradmon {

// Owns a file descriptor and closes it; -1 means none. Movable, not copyable.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // Closes it now. On false, written data may be lost; errno has the cause.
  bool close() { return ::close(release()) == 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

// The two ends of a pipe.
struct Pipe {
  Descriptor from;
  Descriptor to;
};

// `flags`: of pipe2(2). None if no descriptor is left; errno has the cause.
inline std::optional<Pipe> make_pipe(int flags) {
  int ends[2];
  if (::pipe2(ends, flags) != 0) return std::nullopt;
  return Pipe{Descriptor(ends[0]), Descriptor(ends[1])};
}

// True if `path` still names the file that `fd` holds open. False for a symbolic link or after an error.
inline bool is_at_path(const fs::path& path, int fd) {
  struct stat there {};
  struct stat here {};
  return ::lstat(path.c_str(), &there) == 0 && ::fstat(fd, &here) == 0 && there.st_dev == here.st_dev &&
         there.st_ino == here.st_ino;
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// Preloaded into a rank under test: a slow disk. Each write(2) to a file with ".csv" in its
// path takes GRADMON_SLOW_WRITE_MS longer, each open(2) GRADMON_SLOW_OPEN_MS.
#include <dlfcn.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

bool is_csv(int fd) {
  char link[64];
  char path[1024];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = ::readlink(link, path, sizeof path - 1);
  path[length > 0 ? length : 0] = '\0';
  return std::strstr(path, ".csv") != nullptr;
}

void delay_by(const char* variable) {
  const char* const text = std::getenv(variable);
  const long ms = text != nullptr ? std::strtol(text, nullptr, 10) : 0;
  const int before = errno;
  const timespec pause{ms / 1000, ms % 1000 * 1'000'000};
  if (ms > 0) ::nanosleep(&pause, nullptr);
  errno = before;
}

using Open = int (*)(const char*, int, ...);

int open_slowly(Open next, const char* path, int flags, mode_t mode) {
  if (std::strstr(path, ".csv") != nullptr) delay_by("GRADMON_SLOW_OPEN_MS");
  return next(path, flags, mode);
}

}  // namespace

extern "C" ssize_t write(int fd, const void* in, size_t size) {
  using Write = ssize_t (*)(int, const void*, size_t);
  static const auto next = reinterpret_cast<Write>(::dlsym(RTLD_NEXT, "write"));
  if (is_csv(fd)) delay_by("GRADMON_SLOW_WRITE_MS");
  return next(fd, in, size);
}

extern "C" int open(const char* path, int flags, ...) {
  static const auto next = reinterpret_cast<Open>(::dlsym(RTLD_NEXT, "open"));
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_slowly(next, path, flags, mode);
}

extern "C" int open64(const char* path, int flags, ...) {
  static const auto next = reinterpret_cast<Open>(::dlsym(RTLD_NEXT, "open64"));
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_slowly(next, path, flags, mode);
}

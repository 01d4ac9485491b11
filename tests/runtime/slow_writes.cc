// SPDX-License-Identifier: Apache-2.0
// Preloaded into a rank under test: each write(2) to a CSV file, or to what will be
// renamed to one, takes GRADMON_SLOW_WRITE_MS longer, as on a disk that is far away.
#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
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

long delay_ms() {
  static const char* const text = std::getenv("GRADMON_SLOW_WRITE_MS");
  return text != nullptr ? std::strtol(text, nullptr, 10) : 0;
}

}  // namespace

extern "C" ssize_t write(int fd, const void* in, size_t size) {
  using Write = ssize_t (*)(int, const void*, size_t);
  static const auto next = reinterpret_cast<Write>(::dlsym(RTLD_NEXT, "write"));
  const int before = errno;
  if (delay_ms() > 0 && is_csv(fd)) {
    const timespec pause{delay_ms() / 1000, delay_ms() % 1000 * 1'000'000};
    ::nanosleep(&pause, nullptr);
  }
  errno = before;
  return next(fd, in, size);
}

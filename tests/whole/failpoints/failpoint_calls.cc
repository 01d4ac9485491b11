// SPDX-License-Identifier: Apache-2.0
// Preloaded into a process under test: counts its calls on files below one directory, and
// makes chosen calls fail, stop the process or kill it. Not counted: openat, mkdirat,
// fstatat, fchown, extended attributes by descriptor, fcntl, posix_fallocate, pwrite and
// rmdir; counted for programs and libraries with large file support: fcntl64, mmap64, pwrite64. Environment:
// GRADMON_FAILPOINT_BELOW is the directory, GRADMON_FAILPOINT_LOG the log of calls, and
// GRADMON_FAILPOINTS the chosen calls (see failpoints.h).
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace {

enum class Action { fail, stop, kill };

// "7 EIO", "7+ EIO" (call 7 and all later ones), "7-9 EIO", "fsync:2 ENOSPC", "9 stop", "12 kill"
struct Failpoint {
  char name[24] = "";  // `at` counts calls of this name; "": all calls
  long at = 0;
  long last = 0;  // so do the calls between `at` and this one
  Action action = Action::fail;
  int code = 0;
};

constexpr struct {
  const char* name;
  int code;
} kCodes[] = {{"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EROFS", EROFS},
              {"EMFILE", EMFILE}, {"EACCES", EACCES}, {"ESTALE", ESTALE},
              {"EINTR", EINTR},   {"EINVAL", EINVAL}, {"ENOLCK", ENOLCK}};

struct Plan {
  const char* below = std::getenv("GRADMON_FAILPOINT_BELOW");
  int log = -1;
  std::array<Failpoint, 8> points;
  std::size_t count = 0;

  Plan() {
    if (const char* path = std::getenv("GRADMON_FAILPOINT_LOG")) {
      log = static_cast<int>(
          ::syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    }
    const char* text = std::getenv("GRADMON_FAILPOINTS");
    for (; text != nullptr && *text != '\0' && count < points.size(); ++count) {
      read(text, points[count]);
      text = std::strchr(text, ';');
      if (text != nullptr) ++text;
    }
  }

  static void read(const char* text, Failpoint& point) {
    char what[16] = "";
    const char* const colon = std::strchr(text, ':');
    const char* const space = std::strchr(text, ' ');
    if (colon != nullptr && colon < space) {
      std::memcpy(point.name, text, static_cast<std::size_t>(colon - text));
      text = colon + 1;
    }
    char* end = nullptr;
    point.at = std::strtol(text, &end, 10);
    point.last = *end == '+' ? LONG_MAX : point.at;
    if (*end == '-') point.last = std::strtol(end + 1, &end, 10);
    std::sscanf(space, " %15[^;]", what);
    if (std::strcmp(what, "stop") == 0) point.action = Action::stop;
    if (std::strcmp(what, "kill") == 0) point.action = Action::kill;
    for (const auto& known : kCodes) {
      if (std::strcmp(what, known.name) == 0) point.code = known.code;
    }
  }
};

const Plan& plan() {
  static const Plan the_plan;
  return the_plan;
}

bool is_below(const char* path) {
  const Plan& now = plan();
  if (now.below == nullptr || path == nullptr) return false;
  const std::size_t length = std::strlen(now.below);
  return std::strncmp(path, now.below, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

struct CallCount {
  const char* name;
  long calls;
};
std::mutex counts_mutex;
std::array<CallCount, 64> counts;  // guarded by counts_mutex
long all_calls = 0;                // guarded by counts_mutex

struct CallNumber {
  long of_all, of_name;
};
CallNumber count_call(const char* name) {
  const std::lock_guard lock(counts_mutex);
  for (CallCount& counted : counts) {
    if (counted.name == nullptr) counted.name = name;
    if (counted.name == name) return {++all_calls, ++counted.calls};
  }
  std::abort();
}

void log_call(const char* name, CallNumber number, const char* path, const char* outcome) {
  if (plan().log < 0) return;
  char line[1200];
  const int length = std::snprintf(line, sizeof line, "%ld %s:%ld %s%s\n", number.of_all, name,
                                   number.of_name, path, outcome);
  ::syscall(SYS_write, plan().log, line, static_cast<std::size_t>(length));
}

// Counts and logs the call; may stop or kill the process. Returns the errno to fail with, or 0.
int apply_failpoints(const char* name, const char* path) {
  if (!is_below(path)) return 0;
  const int before = errno;
  const CallNumber number = count_call(name);
  for (std::size_t i = 0; i < plan().count; ++i) {
    const Failpoint& point = plan().points[i];
    if (point.name[0] != '\0' && std::strcmp(point.name, name) != 0) continue;
    const long n = point.name[0] != '\0' ? number.of_name : number.of_all;
    if (n < point.at || n > point.last) continue;
    log_call(name, number, path, point.action == Action::fail ? " failed" : " stopped");
    if (point.action == Action::fail) return point.code;
    ::syscall(SYS_kill, ::getpid(), point.action == Action::kill ? SIGKILL : SIGSTOP);
    errno = before;
    return 0;
  }
  log_call(name, number, path, "");
  errno = before;
  return 0;
}

int apply_failpoints_fd(const char* name, int fd) {
  if (plan().below == nullptr) return 0;
  const int before = errno;
  char link[64];
  char path[1024];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const long length = ::syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
  errno = before;
  if (length <= 0) return 0;
  path[length] = '\0';
  // An inotify descriptor counts as the directory.
  if (std::strcmp(path, "anon_inode:inotify") == 0) std::snprintf(path, sizeof path, "%s", plan().below);
  return apply_failpoints(name, path);
}

template <class F>
F next_of(F, const char* name) {
  return reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}

template <class R>
R failed(int code) {
  errno = code;
  if constexpr (std::is_pointer_v<R>) {
    return nullptr;
  } else {
    return -1;
  }
}

}  // namespace

// NOLINTBEGIN
#define GRADMON_WRAP(RESULT, NAME, PARAMETERS, ARGUMENTS, APPLY, SUBJECT)                \
  extern "C" RESULT NAME PARAMETERS {                                                    \
    static const auto next = next_of(static_cast<RESULT(*) PARAMETERS>(nullptr), #NAME); \
    if (const int code = APPLY(#NAME, SUBJECT)) return failed<RESULT>(code);             \
    return next ARGUMENTS;                                                               \
  }
#define GRADMON_WRAP_PATH(RESULT, NAME, PARAMETERS, ARGUMENTS, PATH) \
  GRADMON_WRAP(RESULT, NAME, PARAMETERS, ARGUMENTS, apply_failpoints, PATH)
#define GRADMON_WRAP_FD(RESULT, NAME, PARAMETERS, ARGUMENTS) \
  GRADMON_WRAP(RESULT, NAME, PARAMETERS, ARGUMENTS, apply_failpoints_fd, fd)

#define GRADMON_WRAP_OPEN(NAME)                                                                    \
  extern "C" int NAME(const char* path, int flags, ...) {                                          \
    static const auto next = next_of(static_cast<int (*)(const char*, int, ...)>(nullptr), #NAME); \
    va_list rest;                                                                                  \
    va_start(rest, flags);                                                                         \
    const mode_t mode = va_arg(rest, mode_t);                                                      \
    va_end(rest);                                                                                  \
    if (const int code = apply_failpoints("open", path)) return failed<int>(code);                 \
    return next(path, flags, mode);                                                                \
  }
GRADMON_WRAP_OPEN(open)
GRADMON_WRAP_OPEN(open64)

GRADMON_WRAP_PATH(FILE*, fopen, (const char* path, const char* mode), (path, mode), path)
GRADMON_WRAP_PATH(FILE*, fopen64, (const char* path, const char* mode), (path, mode), path)
GRADMON_WRAP_PATH(int, stat, (const char* path, struct stat* out) noexcept, (path, out), path)
GRADMON_WRAP_PATH(int, lstat, (const char* path, struct stat* out) noexcept, (path, out), path)
GRADMON_WRAP_PATH(int, mkdir, (const char* path, mode_t mode) noexcept, (path, mode), path)
GRADMON_WRAP_PATH(int, unlink, (const char* path) noexcept, (path), path)
GRADMON_WRAP_PATH(int, rename, (const char* from, const char* to) noexcept, (from, to), to)
GRADMON_WRAP_PATH(int, renameat2, (int a, const char* from, int b, const char* to, unsigned flags) noexcept,
                  (a, from, b, to, flags), to)
GRADMON_WRAP_PATH(int, link, (const char* from, const char* to) noexcept, (from, to), to)
GRADMON_WRAP_PATH(int, faccessat, (int dir, const char* path, int mode, int flags) noexcept,
                  (dir, path, mode, flags), path)
GRADMON_WRAP_PATH(char*, realpath, (const char* path, char* out) noexcept, (path, out), path)
GRADMON_WRAP_PATH(ssize_t, listxattr, (const char* path, char* out, size_t size) noexcept, (path, out, size),
                  path)
GRADMON_WRAP_PATH(int, access, (const char* path, int mode) noexcept, (path, mode), path)
GRADMON_WRAP_PATH(DIR*, opendir, (const char* path), (path), path)
GRADMON_WRAP_PATH(int, inotify_add_watch, (int fd, const char* path, uint32_t mask) noexcept,
                  (fd, path, mask), path)
GRADMON_WRAP_PATH(int, inotify_init1, (int flags) noexcept, (flags), plan().below)
GRADMON_WRAP_FD(ssize_t, read, (int fd, void* out, size_t size), (fd, out, size))
GRADMON_WRAP_FD(ssize_t, pread, (int fd, void* out, size_t size, off_t at), (fd, out, size, at))
GRADMON_WRAP_FD(ssize_t, write, (int fd, const void* in, size_t size), (fd, in, size))
GRADMON_WRAP_FD(ssize_t, writev, (int fd, const iovec* in, int count), (fd, in, count))
GRADMON_WRAP_FD(int, fsync, (int fd), (fd))
GRADMON_WRAP_FD(int, fdatasync, (int fd), (fd))
GRADMON_WRAP_FD(int, fstat, (int fd, struct stat* out) noexcept, (fd, out))
GRADMON_WRAP_FD(int, fchmod, (int fd, mode_t mode) noexcept, (fd, mode))
GRADMON_WRAP_FD(int, futimens, (int fd, const timespec* times) noexcept, (fd, times))
GRADMON_WRAP_FD(int, ftruncate, (int fd, off_t size) noexcept, (fd, size))
GRADMON_WRAP_PATH(int, truncate, (const char* path, off_t size) noexcept, (path, size), path)
GRADMON_WRAP_FD(int, flock, (int fd, int operation) noexcept, (fd, operation))
GRADMON_WRAP_PATH(int, stat64, (const char* path, struct stat64* out) noexcept, (path, out), path)
GRADMON_WRAP_PATH(int, lstat64, (const char* path, struct stat64* out) noexcept, (path, out), path)
GRADMON_WRAP_FD(int, fstat64, (int fd, struct stat64* out) noexcept, (fd, out))
GRADMON_WRAP_FD(ssize_t, pread64, (int fd, void* out, size_t size, off64_t at), (fd, out, size, at))
GRADMON_WRAP_FD(ssize_t, pwrite64, (int fd, const void* in, size_t size, off64_t at), (fd, in, size, at))
GRADMON_WRAP_FD(int, ftruncate64, (int fd, off64_t size) noexcept, (fd, size))

extern "C" void* mmap64(void* place, size_t size, int protection, int flags, int fd, off64_t at) noexcept {
  static const auto next = next_of(static_cast<decltype(&mmap64)>(nullptr), "mmap64");
  const int code = fd < 0 ? 0 : apply_failpoints_fd("mmap64", fd);
  if (code == 0) return next(place, size, protection, flags, fd, at);
  errno = code;
  return MAP_FAILED;
}

// Its third argument is a pointer or an int; a pointer holds both.
extern "C" int fcntl64(int fd, int command, ...) {
  static const auto next = next_of(static_cast<int (*)(int, int, ...)>(nullptr), "fcntl64");
  va_list rest;
  va_start(rest, command);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  if (const int code = apply_failpoints_fd("fcntl64", fd)) return failed<int>(code);
  return next(fd, command, argument);
}

// Also closes the descriptor if it fails, as the kernel does.
extern "C" int close(int fd) {
  static const auto next = next_of(static_cast<int (*)(int)>(nullptr), "close");
  const int code = apply_failpoints_fd("close", fd);
  const int closed = next(fd);
  return code != 0 ? failed<int>(code) : closed;
}

extern "C" long syscall(long number, ...) noexcept {
  static const auto next = next_of(static_cast<long (*)(long, ...)>(nullptr), "syscall");
  va_list rest;
  va_start(rest, number);
  const long a = va_arg(rest, long), b = va_arg(rest, long), c = va_arg(rest, long), d = va_arg(rest, long),
             e = va_arg(rest, long), f = va_arg(rest, long);
  va_end(rest);
  if (number == SYS_renameat2) {
    if (const int code = apply_failpoints("renameat2", reinterpret_cast<const char*>(d)))
      return failed<long>(code);
  }
  return next(number, a, b, c, d, e, f);
}
// NOLINTEND

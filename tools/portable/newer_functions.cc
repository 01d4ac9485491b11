// SPDX-License-Identifier: Apache-2.0
// The functions of newer glibcs that gradmon and its static libraries call and that glibc 2.28 lacks. Each
// binary of a wheel has them, hidden.
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#include <cstdint>

namespace {

// The system's function of this name; null before the glibc that has it.
template <typename Function>
Function* system_function(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

constexpr long kSecond = 1000000000;  // in ns

// The time from now until then, in ns, at most a second.
long time_until(clockid_t clock, const timespec& then) {
  timespec now;
  clock_gettime(clock, &now);
  const long seconds = then.tv_sec - now.tv_sec;
  if (seconds > 1) return kSecond;
  const long left = seconds * kSecond + then.tv_nsec - now.tv_nsec;
  return left < kSecond ? left : kSecond;
}

}  // namespace

extern "C" {

// libstdc++ counts references by atomic operations unless it is true.
char __libc_single_threaded = 0;

// The first argument is the layout of struct stat; each architecture has had one.
#ifdef __x86_64__
constexpr int kLayout = 1;
#else
constexpr int kLayout = 0;
#endif
struct stat;
int __xstat(int layout, const char* path, struct stat* found);
int __lxstat(int layout, const char* path, struct stat* found);
int __fxstat(int layout, int file, struct stat* found);
int __fxstatat(int layout, int directory, const char* path, struct stat* found, int flags);

int stat(const char* path, struct stat* found) { return __xstat(kLayout, path, found); }
int lstat(const char* path, struct stat* found) { return __lxstat(kLayout, path, found); }
int fstat(int file, struct stat* found) { return __fxstat(kLayout, file, found); }
int fstatat(int directory, const char* path, struct stat* found, int flags) {
  return __fxstatat(kLayout, directory, path, found, flags);
}
// On 64-bit machines, the same.
int stat64(const char* path, struct stat* found) { return __xstat(kLayout, path, found); }
int lstat64(const char* path, struct stat* found) { return __lxstat(kLayout, path, found); }
int fstat64(int file, struct stat* found) { return __fxstat(kLayout, file, found); }

// std::random_device calls it.
std::uint32_t arc4random() {
  std::uint32_t value;
  while (getrandom(&value, sizeof value, 0) != static_cast<ssize_t>(sizeof value)) {
    if (errno != EINTR) abort();
  }
  return value;
}

// Before glibc 2.30: by the wall clock, which may be set, so for a second at most. Callers expect spurious
// wakeups.
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) {
  static const auto newer = system_function<decltype(pthread_cond_clockwait)>("pthread_cond_clockwait");
  if (newer != nullptr) return newer(condition, mutex, clock, until);
  const long left = time_until(clock, *until);
  if (left <= 0) return ETIMEDOUT;
  timespec wall;
  clock_gettime(CLOCK_REALTIME, &wall);
  wall.tv_sec += (wall.tv_nsec + left) / kSecond;
  wall.tv_nsec = (wall.tv_nsec + left) % kSecond;
  const int result = pthread_cond_timedwait(condition, mutex, &wall);
  return result == ETIMEDOUT && time_until(clock, *until) > 0 ? 0 : result;
}

// Before glibc 2.34: closes the files that are open now.
int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t* actions, int first) {
  static const auto newer = system_function<decltype(posix_spawn_file_actions_addclosefrom_np)>(
      "posix_spawn_file_actions_addclosefrom_np");
  if (newer != nullptr) return newer(actions, first);
  DIR* files = opendir("/proc/self/fd");
  if (files == nullptr) return errno;
  int failure = 0;
  while (const dirent* entry = readdir(files)) {
    const int file = atoi(entry->d_name);
    if (file >= first && failure == 0) failure = posix_spawn_file_actions_addclose(actions, file);
  }
  closedir(files);
  return failure;
}

}  // extern "C"

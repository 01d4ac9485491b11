// SPDX-License-Identifier: Apache-2.0
#include "control/log.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <thread>

#include "control/files/descriptor.h"
#include "control/files/file_access.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

// Replaces the C library's: appends to a regular file answer as on XFS and btrfs.
extern "C" ssize_t pwritev2(int fd, const iovec* parts, int count, off_t offset, int flags) {
  struct stat status {};
  if ((flags & RWF_NOWAIT) != 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
    errno = EAGAIN;
    return -1;
  }
  return syscall(SYS_pwritev2, fd, parts, count, offset, 0L, flags);
}

namespace gradmon {
namespace {

// The stderr of a process with this GRADMON_LOG (null: unset) that logs a debug, an info and a warn line.
std::string lines_under(const char* wanted) {
  Pipe pipe = make_pipe(0).value();
  const pid_t child = fork();
  if (child == 0) {
    dup2(pipe.to.get(), STDERR_FILENO);
    wanted == nullptr ? unsetenv("GRADMON_LOG") : setenv("GRADMON_LOG", wanted, 1);
    log_debug("debugging");
    log_info("informing");
    log_warn("warning");
    _exit(0);
  }
  pipe.to.reset();
  std::string text;
  REQUIRE(read_rest(pipe.from.get(), 10'000, text));
  REQUIRE(waitpid(child, nullptr, 0) == child);
  return text;
}

const std::string kInfo = "gradmon: informing\ngradmon: warning\n";

TEST_CASE("GRADMON_LOG sets the lowest level shown whatever its letter case") {
  CHECK(lines_under(nullptr) == kInfo);
  CHECK(lines_under("INFO") == kInfo);
  CHECK(lines_under("Warn") == "gradmon: warning\n");
  CHECK(lines_under("debug") == "gradmon: debugging\n" + kInfo);
  CHECK(lines_under("OFF").empty());
}

TEST_CASE("an unknown level in GRADMON_LOG keeps the default level and causes one warning") {
  CHECK(lines_under("verbose") ==
        "gradmon: GRADMON_LOG: unknown level \"verbose\" (expected debug, info, warn, error or off)\n" +
            kInfo);
}

TEST_CASE("no line is dropped if stderr is a file on a disk that refuses an append without waiting") {
  const TemporaryDirectory scratch;
  const auto file = scratch / "stderr";
  const pid_t child = fork();
  if (child == 0) {
    const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(fd, STDERR_FILENO);
    log_info("informing");
    log_warn("warning");
    _exit(0);
  }
  REQUIRE(waitpid(child, nullptr, 0) == child);
  CHECK(read_text(file) == kInfo);
}

bool pipes_have_nowait(int pipe_end) {
  iovec nothing{nullptr, 0};
  return pwritev2(pipe_end, &nothing, 0, -1, RWF_NOWAIT) >= 0;
}

// Two processes that log without end to the same pipe, as ranks with one launcher do. Killed by the
// destructor.
class LoggingRanks {
 public:
  explicit LoggingRanks(int stderr_end) {
    for (std::size_t i = 0; i < pids_.size(); ++i) {
      pids_[i] = fork();
      if (pids_[i] == 0) log_without_end(stderr_end, (*lines_)[i]);
      REQUIRE(pids_[i] > 0);
    }
  }
  ~LoggingRanks() {
    for (const pid_t pid : pids_) {
      if (pid <= 0) continue;
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
    munmap(lines_, sizeof(Lines));
  }
  LoggingRanks(const LoggingRanks&) = delete;
  LoggingRanks& operator=(const LoggingRanks&) = delete;

  // Waits until each of them has logged, or dropped, some more lines. False: one has not within 20 s.
  bool go_on() const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{20};
    for (const std::atomic<std::uint64_t>& lines : *lines_) {
      for (const std::uint64_t before = lines; lines < before + 4; std::this_thread::yield())
        if (std::chrono::steady_clock::now() > deadline) return false;
    }
    return true;
  }

 private:
  using Lines = std::array<std::atomic<std::uint64_t>, 2>;

  [[noreturn]] static void log_without_end(int stderr_end, std::atomic<std::uint64_t>& lines) {
    dup2(stderr_end, STDERR_FILENO);
    for (const std::string line(3000, 'x');; ++lines) log_warn(line);
  }

  Lines* const lines_ = static_cast<Lines*>(
      mmap(nullptr, sizeof(Lines), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::array<pid_t, 2> pids_{};
};

// Two of their lines do not fit into one free page of the pipe: once one rank has written, the other must not
// wait.
TEST_CASE("ranks that share a full stderr pipe do not wait for its reader") {
  const Pipe pipe = make_pipe(0).value();
  if (!pipes_have_nowait(pipe.to.get())) {
    WARN("skipped: this kernel has no RWF_NOWAIT for pipes");
    return;
  }
  const LoggingRanks ranks(pipe.to.get());
  std::array<char, 4096> page{};
  for (int pages = 0; pages < 400; ++pages) {
    REQUIRE(read(pipe.from.get(), page.data(), page.size()) > 0);
    REQUIRE(ranks.go_on());
  }
}

}  // namespace
}  // namespace gradmon

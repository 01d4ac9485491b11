// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/run/rank_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "control/host/exec_pointers.h"

namespace gradmon {
namespace {

constexpr int kCannotRun = 126;
constexpr int kNotFound = 127;

struct Pipe {
  int read_end = -1;
  int write_end = -1;

  bool open() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return false;
    read_end = ends[0];
    write_end = ends[1];
    fcntl(read_end, F_SETFL, O_NONBLOCK);
    return true;
  }
  ~Pipe() {
    if (read_end >= 0) close(read_end);
    if (write_end >= 0) close(write_end);
  }
  int release() { return std::exchange(read_end, -1); }
};

// Runs in the child after fork(). Does not return.
[[noreturn]] void exec_rank(char** command, char** environment, const Pipe& out, const Pipe& err,
                            pid_t launcher, const sigset_t& mask) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(kCannotRun);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(nothing, STDIN_FILENO);
  dup2(out.write_end, STDOUT_FILENO);
  dup2(err.write_end, STDERR_FILENO);
  signal(SIGPIPE, SIG_DFL);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  execvpe(command[0], command, environment);
  const int cause = errno;
  dprintf(STDERR_FILENO, "gradmonctl: cannot run %s: %s\n", command[0], std::strerror(cause));
  _exit(cause == ENOENT ? kNotFound : kCannotRun);
}

}  // namespace

RankStream::RankStream(RankStream&& other) noexcept
    : from_(std::exchange(other.from_, -1)), lines_(std::move(other.lines_)) {}

RankStream::~RankStream() {
  if (from_ >= 0) close(from_);
}

bool RankStream::copy_available(PendingOutput& to) {
  if (from_ < 0 || to.blocked()) return false;
  std::array<char, 64 * 1024> buffer;
  const ssize_t size = read(from_, buffer.data(), buffer.size());
  if (size > 0) to.write(lines_.feed({buffer.data(), static_cast<std::size_t>(size)}));
  if (size == 0) end(to);
  return size > 0;
}

void RankStream::end(PendingOutput& to) {
  if (from_ < 0) return;
  to.write(lines_.finish());
  close(std::exchange(from_, -1));
}

tl::expected<RankProcess, std::string> RankProcess::start(const std::vector<std::string>& command,
                                                          const std::vector<std::string>& environment,
                                                          int rank, const sigset_t& mask) {
  const auto failed = [rank](const char* what) {
    return tl::make_unexpected("cannot start rank " + std::to_string(rank) + ": " + what + ": " +
                               std::strerror(errno));
  };
  Pipe out;
  Pipe err;
  if (!out.open() || !err.open()) return failed("pipe");
  std::vector<char*> arguments = exec_pointers(command);
  std::vector<char*> variables = exec_pointers(environment);
  const pid_t launcher = getpid();
  const pid_t pid = fork();
  if (pid < 0) return failed("fork");
  if (pid == 0) {
    exec_rank(arguments.data(), variables.data(), out, err, launcher, mask);
  }
  setpgid(pid, pid);  // The child does this too; either may be first.
  return RankProcess(pid, out.release(), err.release(), rank);
}

std::optional<int> RankProcess::reap() {
  std::optional<int> status_of_rank;
  while (!gone_) {
    int status = 0;
    const pid_t ended = waitpid(-pid_, &status, WNOHANG);
    if (ended == 0) break;
    if (ended == pid_) status_of_rank = status;
    if (ended < 0 && errno == ECHILD) gone_ = true;
  }
  return status_of_rank;
}

void RankProcess::send(int signal) const {
  if (!gone_) kill(-pid_, signal);
}

}  // namespace gradmon

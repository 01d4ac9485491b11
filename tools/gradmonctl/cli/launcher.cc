// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/cli/launcher.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <utility>

#include "control/files/descriptor.h"
#include "control/host/child_process.h"

namespace gradmon {

std::string LinePrefixer::feed(std::string_view bytes) {
  std::string lines;
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::size_t here =
        std::min(end == std::string_view::npos ? bytes.size() : end, kLongestLine - pending_.size());
    pending_.append(bytes.substr(0, here));
    bytes.remove_prefix(here);
    const bool whole = !bytes.empty() && bytes.front() == '\n';
    if (whole) bytes.remove_prefix(1);
    if (whole || pending_.size() == kLongestLine) {
      lines += prefix_ + pending_ + '\n';
      pending_.clear();
    }
  }
  return lines;
}

std::string LinePrefixer::finish() { return pending_.empty() ? std::string() : feed("\n"); }

namespace {

// The lowest port that the system assigns for port 0: 32768 unless the host is configured otherwise.
int lowest_given_port() {
  std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
  int lowest = 0;
  return range >> lowest ? lowest : 32768;
}

// Binds `port` (0: any) on 127.0.0.1 for a moment. Returns the bound port; on none, errno has the cause.
std::optional<int> bound_port(int port) {
  const Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return std::nullopt;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool bound = bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0;
  return bound ? std::optional<int>(ntohs(address.sin_port)) : std::nullopt;
}

}  // namespace

Result<int> free_port() {
  constexpr int first = 10'000;
  constexpr int tries = 100;
  const int end = lowest_given_port();
  std::random_device random;
  for (int i = 0; i < tries && first < end; ++i) {
    if (const auto port = bound_port(std::uniform_int_distribution<int>(first, end - 1)(random)))
      return *port;
  }
  if (const auto port = bound_port(0)) return *port;
  return tl::make_unexpected(std::string("cannot find a free port on 127.0.0.1: ") + std::strerror(errno));
}

std::vector<std::string> rank_environment(const std::vector<std::string>& inherited, int rank,
                                          const LaunchIdentity& launch) {
  std::map<std::string, std::string> variables{{"DYNAMIC_MONITOR", "True"}, {"USE_LIBUV", "0"}};
  for (const std::string& entry : inherited) {
    const std::size_t equals = entry.find('=');
    if (equals != std::string::npos) variables[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  variables["RANK"] = variables["LOCAL_RANK"] = std::to_string(rank);
  variables["WORLD_SIZE"] = variables["LOCAL_WORLD_SIZE"] = std::to_string(launch.ranks);
  variables["MASTER_ADDR"] = "127.0.0.1";
  variables["MASTER_PORT"] = std::to_string(launch.master_port);
  variables["GRADMON_RUN_ID"] = launch.run_id;
  std::vector<std::string> entries;
  for (const auto& [name, value] : variables) entries.push_back(name + "=" + value);
  return entries;
}

namespace {

using Clock = std::chrono::steady_clock;

// The longest wait, after a signal to end, for a reader that has stopped reading.
constexpr std::chrono::milliseconds kReaderTime{1000};
// Exit codes of a rank whose command does not start, as a shell gives them.
constexpr int kCannotRun = 126;
constexpr int kNotFound = 127;

// Reads the signals of this process from a signalfd; the destructor restores the signal
// mask. An ignored signal (nohup, a background job) stays ignored.
class SignalFile {
 public:
  SignalFile() {
    sigset_t taken;
    sigemptyset(&taken);
    sigaddset(&taken, SIGCHLD);
    for (const int signal : {SIGINT, SIGQUIT, SIGTERM, SIGHUP}) {
      struct sigaction action {};
      sigaction(signal, nullptr, &action);
      if (action.sa_handler != SIG_IGN) sigaddset(&taken, signal);
    }
    sigprocmask(SIG_BLOCK, &taken, &before_);
    file_.reset(signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~SignalFile() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  SignalFile(const SignalFile&) = delete;
  SignalFile& operator=(const SignalFile&) = delete;

  int fd() const { return file_.get(); }
  const sigset_t& mask_before() const { return before_; }
  std::optional<int> next() {
    signalfd_siginfo info{};
    if (read(fd(), &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return std::nullopt;
    return static_cast<int>(info.ssi_signo);
  }

 private:
  Descriptor file_;
  sigset_t before_{};
};

// Writes to stdout or stderr without waiting for its reader, and keeps the rest. If the reader has gone,
// the text is discarded. One thread.
class PendingOutput {
 public:
  explicit PendingOutput(int fd) : fd_(fd) {}
  PendingOutput(const PendingOutput&) = delete;
  PendingOutput& operator=(const PendingOutput&) = delete;

  int fd() const { return fd_; }  // for poll()
  bool blocked() const { return !rest_.empty(); }
  // Writes as much as fits now.
  void write(std::string_view bytes) {
    rest_ += bytes;
    std::size_t done = 0;
    for (pollfd file{fd_, POLLOUT, 0}; done < rest_.size() && poll(&file, 1, 0) == 1;) {
      // A pipe that can be written to takes PIPE_BUF bytes without blocking.
      const std::size_t size = std::min<std::size_t>(rest_.size() - done, PIPE_BUF);
      const ssize_t written = ::write(fd_, rest_.data() + done, size);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0 && errno == EAGAIN) break;
      done = written < 0 ? rest_.size() : done + static_cast<std::size_t>(written);
    }
    rest_.erase(0, done);
  }
  void write_rest() { write({}); }

 private:
  const int fd_;  // Borrowed; may be in blocking mode.
  std::string rest_;
};

// Runs in the child after fork(). Does not return.
[[noreturn]] void exec_rank(char** command, char** environment, const Pipe& out, const Pipe& err,
                            pid_t launcher, const sigset_t& mask) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(kCannotRun);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(nothing, STDIN_FILENO);
  dup2(out.to.get(), STDOUT_FILENO);
  dup2(err.to.get(), STDERR_FILENO);
  signal(SIGPIPE, SIG_DFL);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  execvpe(command[0], command, environment);
  const int cause = errno;
  dprintf(STDERR_FILENO, "gradmonctl: cannot run %s: %s\n", command[0], std::strerror(cause));
  _exit(cause == ENOENT ? kNotFound : kCannotRun);
}

// Copies stdout or stderr of a rank, line by line, to the same stream of this process. Does not block.
class RankStream {
 public:
  RankStream(Descriptor from, int rank) : from_(std::move(from)), lines_(rank) {}

  int fd() const { return from_.get(); }  // for poll(); -1 after the end of the stream
  // Copies at most 64 KiB; nothing while `to` is blocked. Returns false if it copied nothing.
  bool copy_available(PendingOutput& to);
  void end(PendingOutput& to);  // copies an unfinished line, then closes the pipe

 private:
  Descriptor from_;  // Non-blocking.
  LinePrefixer lines_;
};

// One rank and the processes it has started: its own process group. gone(): all processes of the group have
// ended. One thread. The process that creates ranks must be a child subreaper, or gone() would be true too
// early.
class RankProcess {
 public:
  // Runs `command` with stdin from /dev/null, the signal mask `mask` and default SIGPIPE. If this process
  // dies first, the kernel kills the command, but not the processes that it started.
  static Result<RankProcess> start(const std::vector<std::string>& command,
                                   const std::vector<std::string>& environment, int rank,
                                   const sigset_t& mask);

  // Reaps the ended processes of the group. Returns the wait status of the rank itself, once.
  std::optional<int> reap();
  bool gone() const { return gone_; }
  pid_t pid() const { return pid_; }
  void send(int signal) const;  // to the whole group; does nothing if it is gone

  RankStream out;
  RankStream err;

 private:
  RankProcess(pid_t pid, Descriptor from_out, Descriptor from_err, int rank)
      : out(std::move(from_out), rank), err(std::move(from_err), rank), pid_(pid) {}

  pid_t pid_;  // Constant after construction; also the group's id.
  bool gone_ = false;
};

bool RankStream::copy_available(PendingOutput& to) {
  if (!from_.valid() || to.blocked()) return false;
  std::array<char, 64 * 1024> buffer;
  const ssize_t size = read(fd(), buffer.data(), buffer.size());
  if (size > 0) to.write(lines_.feed({buffer.data(), static_cast<std::size_t>(size)}));
  if (size == 0) end(to);
  return size > 0;
}

void RankStream::end(PendingOutput& to) {
  if (!from_.valid()) return;
  to.write(lines_.finish());
  from_.reset();
}

Result<RankProcess> RankProcess::start(const std::vector<std::string>& command,
                                       const std::vector<std::string>& environment, int rank,
                                       const sigset_t& mask) {
  const auto failed = [rank](const char* what) {
    return tl::make_unexpected("cannot start rank " + std::to_string(rank) + ": " + what + ": " +
                               std::strerror(errno));
  };
  auto out = make_pipe(O_CLOEXEC), err = make_pipe(O_CLOEXEC);
  if (!out || !err) return failed("pipe");
  for (const auto* const pipe : {&out, &err}) fcntl((*pipe)->from.get(), F_SETFL, O_NONBLOCK);
  std::vector<char*> arguments = exec_pointers(command);
  std::vector<char*> variables = exec_pointers(environment);
  const pid_t launcher = getpid();
  const pid_t pid = fork();
  if (pid < 0) return failed("fork");
  if (pid == 0) {
    exec_rank(arguments.data(), variables.data(), *out, *err, launcher, mask);
  }
  setpgid(pid, pid);  // The child does this too; either may be first.
  return RankProcess(pid, std::move(out->from), std::move(err->from), rank);
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

int exit_code(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

std::string how_it_ended(int status) {
  if (!WIFSIGNALED(status)) return "ended with exit code " + std::to_string(WEXITSTATUS(status));
  return std::string("was killed by signal ") + std::to_string(WTERMSIG(status)) + " (" +
         ::strsignal(WTERMSIG(status)) + ")";
}

class RankGroup {
 public:
  explicit RankGroup(const Launch& launch) : launch_(launch) {}

  Result<void> start();
  void end_all();
  int wait();

 private:
  void poll_once();
  void take_signals();
  void reap();
  void reap_orphans() const;
  void copy_all_available();
  void finish(RankStream& from, PendingOutput& to);
  void wait_for_reader();
  void add_streams(RankStream RankProcess::*stream, const PendingOutput& to,
                   std::vector<pollfd>& files) const;
  int until_deadline() const;
  bool all_gone() const;

  const Launch& launch_;
  SignalFile signals_;
  PendingOutput out_{STDOUT_FILENO};
  PendingOutput err_{STDERR_FILENO};
  std::vector<RankProcess> ranks_;
  int running_ = 0;  // ranks whose own process has not ended
  int code_ = 0;     // exit code of the first rank that failed
  std::optional<Clock::time_point> kill_at_;
  std::optional<Clock::time_point> signalled_;  // time of the first signal to end
};

Result<void> RankGroup::start() {
  const auto port = free_port();
  if (!port) return tl::make_unexpected(port.error());
  const LaunchIdentity identity{launch_.ranks, *port, random_hex(16)};
  std::vector<std::string> inherited;
  for (char** entry = environ; *entry != nullptr; ++entry) inherited.emplace_back(*entry);
  ranks_.reserve(static_cast<std::size_t>(launch_.ranks));
  for (int rank = 0; rank < launch_.ranks; ++rank) {
    auto started = RankProcess::start(launch_.command, rank_environment(inherited, rank, identity), rank,
                                      signals_.mask_before());
    if (!started) return tl::make_unexpected(started.error());
    ranks_.push_back(std::move(*started));
    ++running_;
  }
  return {};
}

void RankGroup::end_all() {
  if (kill_at_) return;
  kill_at_ = Clock::now() + launch_.grace;
  for (const RankProcess& rank : ranks_) rank.send(SIGTERM);
}

int RankGroup::wait() {
  while (!all_gone()) poll_once();
  for (RankProcess& rank : ranks_) {
    finish(rank.out, out_);
    finish(rank.err, err_);
  }
  wait_for_reader();
  return code_;
}

void RankGroup::finish(RankStream& from, PendingOutput& to) {
  // A pipe holds at most 1 MiB; any further output is from a process that left the group.
  for (int reads = 0; reads < 16 && from.copy_available(to); ++reads) wait_for_reader();
  from.end(to);
}

// Returns when all output is written; after a signal to end, at the latest after kReaderTime.
void RankGroup::wait_for_reader() {
  while (out_.blocked() || err_.blocked()) {
    if (signalled_ && Clock::now() >= *signalled_ + kReaderTime) return;
    std::array<pollfd, 3> files{{{signals_.fd(), POLLIN, 0},
                                 {out_.blocked() ? out_.fd() : -1, POLLOUT, 0},
                                 {err_.blocked() ? err_.fd() : -1, POLLOUT, 0}}};
    poll(files.data(), files.size(), signalled_ ? 100 : -1);
    take_signals();
    out_.write_rest();
    err_.write_rest();
  }
}

// The files of a stream of all ranks; of our own stream while it is blocked.
void RankGroup::add_streams(RankStream RankProcess::*stream, const PendingOutput& to,
                            std::vector<pollfd>& files) const {
  if (to.blocked()) return files.push_back({to.fd(), POLLOUT, 0});
  for (const RankProcess& rank : ranks_) files.push_back({(rank.*stream).fd(), POLLIN, 0});
}

void RankGroup::poll_once() {
  std::vector<pollfd> files{{signals_.fd(), POLLIN, 0}};
  add_streams(&RankProcess::out, out_, files);
  add_streams(&RankProcess::err, err_, files);
  poll(files.data(), files.size(), until_deadline());
  copy_all_available();
  take_signals();
  reap();
  reap_orphans();
  if (running_ == 0) end_all();
  if (kill_at_ && Clock::now() >= *kill_at_) {
    for (const RankProcess& rank : ranks_) rank.send(SIGKILL);
  }
}

void RankGroup::take_signals() {
  while (const std::optional<int> signal = signals_.next()) {
    if (*signal == SIGCHLD) continue;
    if (!signalled_) signalled_ = Clock::now();
    for (const RankProcess& rank : ranks_) rank.send(*signal);
  }
}

void RankGroup::reap() {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const std::optional<int> status = ranks_[i].reap();
    if (!status) continue;
    --running_;
    if (exit_code(*status) == 0 || code_ != 0) continue;
    code_ = exit_code(*status);
    err_.write("gradmonctl: rank " + std::to_string(i) + ' ' + how_it_ended(*status) +
               (running_ > 0 ? "; ending the others\n" : "\n"));
    end_all();
  }
}

// The other ended children are orphans of ranks, for example a hub that ended because another hub already
// served the job.
void RankGroup::reap_orphans() const {
  for (siginfo_t ended{}; waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid != 0;
       ended = {}) {
    const bool a_rank = std::any_of(ranks_.begin(), ranks_.end(),
                                    [&](const RankProcess& rank) { return rank.pid() == ended.si_pid; });
    if (a_rank) return;  // The next reap() collects it; the orphans behind it follow.
    waitpid(ended.si_pid, nullptr, 0);
  }
}

void RankGroup::copy_all_available() {
  out_.write_rest();
  err_.write_rest();
  for (RankProcess& rank : ranks_) {
    rank.out.copy_available(out_);
    rank.err.copy_available(err_);
  }
}

int RankGroup::until_deadline() const {
  if (!kill_at_) return -1;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(*kill_at_ - Clock::now()).count();
  // At least 100 ms: after SIGKILL the loop only waits for ended processes, and may have missed a SIGCHLD.
  return static_cast<int>(std::max<long long>(left + 1, 100));
}

bool RankGroup::all_gone() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const RankProcess& rank) { return rank.gone(); });
}

}  // namespace

Result<int> launch(const Launch& launch) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  signal(SIGCHLD, SIG_DFL);  // An inherited SIG_IGN would hide the ranks' exit statuses.
  RankGroup group(launch);
  const auto started = group.start();
  if (!started) group.end_all();
  const int code = group.wait();
  if (!started) return tl::make_unexpected(started.error());
  return code;
}

}  // namespace gradmon

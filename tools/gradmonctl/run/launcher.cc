// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/run/launcher.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "control/host/process_identity.h"
#include "tools/gradmonctl/run/rank_environment.h"
#include "tools/gradmonctl/run/rank_process.h"

namespace gradmon {
namespace {

using Clock = std::chrono::steady_clock;

// The longest wait, after a signal to end, for a reader that has stopped reading.
constexpr std::chrono::milliseconds kReaderTime{1000};

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
    fd_ = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~SignalFile() {
    close(fd_);
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  SignalFile(const SignalFile&) = delete;
  SignalFile& operator=(const SignalFile&) = delete;

  int fd() const { return fd_; }
  const sigset_t& mask_before() const { return before_; }
  std::optional<int> next() {
    signalfd_siginfo info{};
    if (read(fd_, &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return std::nullopt;
    return static_cast<int>(info.ssi_signo);
  }

 private:
  int fd_ = -1;
  sigset_t before_{};
};

int exit_code(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

std::string how_it_ended(int status) {
  if (!WIFSIGNALED(status)) return "ended with exit code " + std::to_string(WEXITSTATUS(status));
  return std::string("was killed by signal ") + std::to_string(WTERMSIG(status)) + " (" +
         ::strsignal(WTERMSIG(status)) + ")";
}

class RankGroup {
 public:
  explicit RankGroup(const Launch& launch) : launch_(launch) {}

  tl::expected<void, std::string> start();
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

tl::expected<void, std::string> RankGroup::start() {
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

tl::expected<int, std::string> launch(const Launch& launch) {
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

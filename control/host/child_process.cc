// SPDX-License-Identifier: Apache-2.0
#include "control/host/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sodium.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <system_error>

#include "control/files/file_access.h"

namespace gradmon {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr char kDone = 'd';  // marks the end of a complete answer
constexpr milliseconds kReapTime{200};

[[noreturn]] void answer(const std::function<std::string()>& work, int to) {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (stream != to) ::close(stream);
  }
  try {
    [[maybe_unused]] const bool written = write_all(to, work() + kDone);
  } catch (...) {  // Without the end marker the parent discards the answer.
  }
  ::_exit(0);
}

// Reads until the end of file or the deadline, and returns the bytes read.
std::string read_until(Clock::time_point deadline, int from) {
  std::string text;
  std::array<char, 65'536> piece{};
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    pollfd polled{from, POLLIN, 0};
    const int ready = ::poll(&polled, 1, static_cast<int>(std::max(left, milliseconds{0}).count()));
    if (ready == 0) return text;
    if (ready < 0) continue;
    const ssize_t n = ::read(from, piece.data(), piece.size());
    if (n <= 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(n));
  }
}

}  // namespace

void end_child(pid_t child) {
  ::kill(child, SIGKILL);
  const auto deadline = Clock::now() + kReapTime;
  while (Clock::now() < deadline) {
    const pid_t reaped = ::waitpid(child, nullptr, WNOHANG);
    if (reaped == child || (reaped < 0 && errno != EINTR)) return;
    ::poll(nullptr, 0, 1);
  }
}

int spawn(const std::string& program, const std::vector<char*>& argv, char* const* envp,
          const SpawnOptions& options, pid_t& pid) {
  posix_spawnattr_t attributes{};
  posix_spawn_file_actions_t actions{};
  int error = 0;
  const auto note = [&](int of_call) { error = error == 0 ? of_call : error; };
  // glibc's two init functions cannot fail.
  note(::posix_spawnattr_init(&attributes));
  note(::posix_spawn_file_actions_init(&actions));
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  note(::posix_spawnattr_setsigmask(&attributes, &none));
  note(::posix_spawnattr_setsigdefault(&attributes, &all));
  const int session = options.new_session ? POSIX_SPAWN_SETSID : 0;
  note(::posix_spawnattr_setflags(
      &attributes, static_cast<short>(session | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF)));
  if (options.input >= 0) note(::posix_spawn_file_actions_adddup2(&actions, options.input, STDIN_FILENO));
  // First, because the opens below need free descriptors.
  note(::posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1));
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fd != STDIN_FILENO || options.input < 0)
      note(::posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0));
  }
  if (error == 0) error = ::posix_spawn(&pid, program.c_str(), &actions, &attributes, argv.data(), envp);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  return error;
}

std::optional<std::string> run_in_child(const std::function<std::string()>& work, milliseconds at_most) {
  auto pipe = make_pipe(O_CLOEXEC);
  if (!pipe) return {};
  const pid_t child = ::fork();
  if (child == 0) answer(work, pipe->to.get());
  pipe->to.reset();
  if (child < 0) return {};
  std::string text = read_until(Clock::now() + at_most, pipe->from.get());
  const bool done = !text.empty() && text.back() == kDone;
  end_child(child);
  if (!done) return {};
  text.pop_back();
  return text;
}

namespace {

constexpr int kResult = 3;  // the descriptor of the result in helper and program
constexpr rlim_t kOpenFiles = 1024;
constexpr int kPollPauseMs = 20;
constexpr int kPollsAfterKill = 100;

enum class End : int { exited, killed, timed_out, not_started };
struct Ending {
  End end;
  int value;  // exit status, signal or errno
};

// All data of helper and program, made before the fork: the process may have other threads, so only
// async-signal-safe functions may be called between fork and exec.
struct Prepared {
  std::vector<char*> argv;
  std::vector<char*> envp;
  int input = -1;
  int null = -1;
  int result = -1;
  milliseconds time_limit{};
};

void close_from(int first) {
#ifdef SYS_close_range
  if (::syscall(SYS_close_range, static_cast<unsigned>(first), ~0U, 0U) == 0) return;
#endif
  rlimit limit{};
  const bool known = ::getrlimit(RLIMIT_NOFILE, &limit) == 0;
  const int end = known ? static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1 << 20)) : 65'536;
  for (int fd = first; fd < end; ++fd) ::close(fd);
}

// Leaves the standard streams and kResult open. The descriptors of `prepared` are above kResult.
void take_descriptors(const Prepared& prepared, int input) {
  ::dup2(input, STDIN_FILENO);
  ::dup2(prepared.null, STDOUT_FILENO);
  ::dup2(prepared.null, STDERR_FILENO);
  ::dup2(prepared.result, kResult);
  ::fcntl(kResult, F_SETFD, FD_CLOEXEC);
  close_from(kResult + 1);
}

void default_signals() {
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// The hub bounds its own memory and raises its descriptor limit; neither limit is for the user's program.
void default_limits() {
  set_soft_limit(RLIMIT_AS, RLIM_INFINITY);
  set_soft_limit(RLIMIT_NOFILE, kOpenFiles);
}

void report(Ending result) { [[maybe_unused]] const ssize_t n = ::write(kResult, &result, sizeof result); }

[[noreturn]] void run_program(const Prepared& prepared) {
  ::setpgid(0, 0);
  take_descriptors(prepared, prepared.input);
  default_signals();
  default_limits();
  ::execve(prepared.argv[0], prepared.argv.data(), prepared.envp.data());
  report({End::not_started, errno});
  ::_exit(127);
}

bool has_ended(pid_t program, int& status) { return ::waitpid(program, &status, WNOHANG) == program; }

[[noreturn]] void run_helper(const Prepared& prepared) {
  ::setsid();
  const pid_t program = ::fork();
  if (program == 0) run_program(prepared);
  const int error = errno;
  take_descriptors(prepared, prepared.null);
  if (program < 0) {
    report({End::not_started, error});
    ::_exit(1);
  }
  ::setpgid(program, program);  // The program does it, too; the order does not matter.
  int status = 0;
  bool ended = false;
  for (const auto end = Clock::now() + prepared.time_limit; !(ended = has_ended(program, status));) {
    if (Clock::now() >= end) break;
    ::poll(nullptr, 0, kPollPauseMs);
  }
  ::kill(-program, SIGKILL);
  if (!ended) {
    report({End::timed_out, 0});
    for (int i = 0; i < kPollsAfterKill && !has_ended(program, status); ++i) ::poll(nullptr, 0, kPollPauseMs);
  } else if (WIFEXITED(status)) {
    report({End::exited, WEXITSTATUS(status)});
  } else {
    report({End::killed, WTERMSIG(status)});
  }
  ::_exit(0);
}

std::string text_of(const Ending& result, std::chrono::milliseconds time_limit) {
  const std::string value = std::to_string(result.value);
  switch (result.end) {
    case End::exited:
      return result.value == 0 ? "" : "exited with status " + value;
    case End::killed:
      return "was killed by signal " + value;
    case End::timed_out:
      return "ran longer than " + std::to_string(time_limit.count() / 1000) + " s and was killed";
    case End::not_started:
      break;
  }
  return "could not be started: " + std::generic_category().message(result.value);
}

tl::unexpected<std::string> problem(const char* what) {
  return tl::unexpected(std::string(what) + ": " + std::generic_category().message(errno));
}

// The same file under a number above kResult, so that the standard streams do not overwrite it.
Descriptor above_result(int fd) { return Descriptor(::fcntl(fd, F_DUPFD_CLOEXEC, kResult + 1)); }

std::optional<Pipe> pipe_above_result() {
  const auto made = make_pipe(O_CLOEXEC | O_NONBLOCK);
  if (!made) return {};
  Pipe pipe{above_result(made->from.get()), above_result(made->to.get())};
  return pipe.from.valid() && pipe.to.valid() ? std::optional(std::move(pipe)) : std::nullopt;
}

}  // namespace

Result<LimitedProcess> LimitedProcess::start(const LimitedCommand& command) {
  if (command.arguments.empty() || command.arguments[0].rfind('/', 0) != 0)
    return tl::unexpected(std::string("the program's path is not absolute"));
  if (command.input.size() > LimitedCommand::kMostInput)
    return tl::unexpected(std::string("the input is too long"));
  auto input = pipe_above_result();
  auto result = pipe_above_result();
  const Descriptor opened(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const Descriptor null = above_result(opened.get());
  if (!input || !result || !null.valid()) return problem("no descriptor");
  // A pipe holds 64 KiB, so the write does not block, and this process need not wait for the program's read.
  if (::write(input->to.get(), command.input.data(), command.input.size()) !=
      static_cast<ssize_t>(command.input.size()))
    return problem("cannot write the input");
  ::fcntl(input->from.get(), F_SETFL, 0);  // Programs expect a blocking stream.
  input->to.reset();
  const Prepared prepared{exec_pointers(command.arguments),
                          exec_pointers(command.environment),
                          input->from.get(),
                          null.get(),
                          result->to.get(),
                          command.time_limit};
  const pid_t helper = ::fork();
  if (helper == 0) run_helper(prepared);
  if (helper < 0) return problem("cannot fork");
  return LimitedProcess(helper, std::move(result->from), command.time_limit);
}

// The helper ends soon after reporting the result, but not at once.
std::optional<std::string> LimitedProcess::poll() {
  if (!ended_) {
    Ending result{};
    const ssize_t n = ::read(result_.get(), &result, sizeof result);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
    ended_ = n == sizeof result ? text_of(result, time_limit_) : "was killed with its helper";
  }
  return ::waitpid(helper_, nullptr, WNOHANG) == 0 ? std::nullopt : ended_;
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

std::uint64_t process_start_ticks(std::int64_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(stat, line)) return 0;
  // The command name may contain any character, but it ends at the last ')'. The start time is field 22,
  // the twentieth after the name (proc(5)).
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(line.substr(name_end + 1));
  std::string state;
  fields >> state;
  if (state == "Z") return 0;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  std::uint64_t start = 0;
  fields >> start;
  return start;
}

std::string random_hex(std::size_t bytes) {
  [[maybe_unused]] const int initialised = sodium_init();
  std::string raw(bytes, '\0');  // not a vector: its data() may be null
  randombytes_buf(raw.data(), raw.size());
  std::string hex(2 * bytes + 1, '\0');
  sodium_bin2hex(hex.data(), hex.size(), reinterpret_cast<const unsigned char*>(raw.data()), raw.size());
  hex.pop_back();  // the terminating NUL
  return hex;
}

std::int64_t wall_now() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

milliseconds boot_now() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::duration_cast<milliseconds>(std::chrono::seconds(now.tv_sec) +
                                                  std::chrono::nanoseconds(now.tv_nsec));
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/availability/child_process.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/support/real_job.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

constexpr int kCannotExec = 127;
constexpr std::chrono::milliseconds kDiesWithin{1'000};

// Becomes that user, who may still read every file: torch may lie below a directory of root's alone, as
// mktemp -d makes them. False: failed.
bool become(uid_t user) {
  const gid_t group = user;
  if (prctl(PR_SET_KEEPCAPS, 1) != 0 || setgroups(0, nullptr) != 0 || setgid(group) != 0 || setuid(user) != 0)
    return false;
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3]{};
  constexpr __u32 reads = 1U << CAP_DAC_READ_SEARCH;
  data[0] = {reads, reads, reads};
  return syscall(SYS_capset, &header, data) == 0 &&
         prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_READ_SEARCH, 0, 0) == 0;
}

[[noreturn]] void exec_program(const ProcessOptions& options, const std::vector<char*>& arguments) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int out = open(options.output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  dup2(out, STDOUT_FILENO);
  dup2(options.error >= 0 ? options.error : out, STDERR_FILENO);
  for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
  for (const int number : {SIGPIPE, SIGTERM, SIGINT, SIGHUP}) ::signal(number, SIG_DFL);
  if (options.user != 0) {
    if (!become(options.user)) _exit(kCannotExec);
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // again: setuid() clears it
  }
  execvp(arguments[0], arguments.data());
  _exit(kCannotExec);
}

pid_t start(const ProcessOptions& options) {
  std::vector<char*> arguments;
  for (const std::string& word : options.command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) exec_program(options, arguments);
  return child;
}

}  // namespace

ChildProcess::ChildProcess(const ProcessOptions& options) : pid_(start(options)) {}

ChildProcess::~ChildProcess() {
  if (code_) return;
  kill(pid_, SIGKILL);
  wait(kDiesWithin);  // Bounded: a process in a call on a hung disk does not die.
}

void ChildProcess::signal(int number) const {
  if (!code_) kill(pid_, number);
}

std::optional<int> ChildProcess::wait(std::chrono::milliseconds at_most) {
  eventually(
      [&] {
        int status = 0;
        if (!code_ && waitpid(pid_, &status, WNOHANG) == pid_) code_ = exit_code_of(status);
        return code_.has_value();
      },
      at_most);
  return code_;
}

ProcessResult run_process(ProcessOptions options, std::chrono::milliseconds at_most) {
  const TemporaryDirectory scratch;
  options.output = scratch / "out";
  const int err = open((scratch / "err").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  options.error = err;
  std::filesystem::permissions(scratch.path(), std::filesystem::perms::all);
  const auto begun = std::chrono::steady_clock::now();
  ProcessResult result;
  {
    ChildProcess child(options);
    result.code = child.wait(at_most).value_or(124);
  }
  close(err);
  result.took =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begun);
  result.out = read_text(scratch / "out");
  result.err = read_text(scratch / "err");
  return result;
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "tests/tools/gradmonctl/gradmonctl_process.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <utility>

namespace gradmon {

GradmonctlProcess::GradmonctlProcess(const std::vector<std::string>& arguments,
                                     const std::vector<std::string>& environment, std::optional<uid_t> user) {
  const std::string out = (scratch_ / "out").string();
  const std::string err = (scratch_ / "err").string();
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("cannot fork");
  if (pid_ != 0) return;
  dup2(open(out.c_str(), O_WRONLY | O_CREAT, 0600), STDOUT_FILENO);
  dup2(open(err.c_str(), O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
  // The tests may have been started with ignored signals (nohup, a background job).
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM, SIGTTIN, SIGTTOU, SIGXFSZ})
    signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  exec_gradmonctl(arguments, environment, user);
}

GradmonctlProcess::~GradmonctlProcess() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

int GradmonctlProcess::wait() {
  const pid_t pid = std::exchange(pid_, -1);
  if (pid < 0) throw std::logic_error("this gradmonctl process has already ended");
  int status = 0;
  pid_t ended = waitpid(pid, &status, 0);
  while (ended < 0 && errno == EINTR) ended = waitpid(pid, &status, 0);
  if (ended != pid) throw std::runtime_error("cannot wait for gradmonctl");
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

ProcessResult run_gradmonctl(const std::vector<std::string>& arguments,
                             const std::vector<std::string>& environment, std::optional<uid_t> user) {
  GradmonctlProcess process(arguments, environment, user);
  const int code = process.wait();
  return {code, process.out(), process.err()};
}

void exec_gradmonctl(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
                     std::optional<uid_t> user) {
  for (const std::string& entry : environment) {
    const std::size_t equals = entry.find('=');
    setenv(entry.substr(0, equals).c_str(), entry.substr(equals + 1).c_str(), 1);
  }
  std::vector<char*> words{const_cast<char*>("gradmonctl")};
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  const int program = open(GRADMONCTL, O_PATH | O_CLOEXEC);  // Before setuid(): `user` may not reach it.
  if (user && (setgroups(0, nullptr) != 0 || setgid(*user) != 0 || setuid(*user) != 0)) _exit(126);
  fexecve(program, words.data(), environ);
  _exit(125);
}

}  // namespace gradmon

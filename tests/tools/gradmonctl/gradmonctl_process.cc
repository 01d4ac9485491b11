// SPDX-License-Identifier: Apache-2.0
#include "tests/tools/gradmonctl/gradmonctl_process.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace gradmon {

GradmonctlProcess::GradmonctlProcess(const std::vector<std::string>& arguments,
                                     const std::vector<std::string>& environment, std::optional<uid_t> user) {
  const std::string out = (scratch_ / "out").string();
  const std::string err = (scratch_ / "err").string();
  pid_ = fork();
  if (pid_ != 0) return;
  dup2(open(out.c_str(), O_WRONLY | O_CREAT, 0600), STDOUT_FILENO);
  dup2(open(err.c_str(), O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
  // Whatever the tests themselves were started under (nohup, a background job).
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM, SIGTTIN, SIGTTOU, SIGXFSZ})
    signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const std::string& entry : environment) {
    const std::size_t equals = entry.find('=');
    setenv(entry.substr(0, equals).c_str(), entry.substr(equals + 1).c_str(), 1);
  }
  std::vector<char*> words{const_cast<char*>("gradmonctl")};
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  const int program = open(GRADMONCTL, O_PATH | O_CLOEXEC);  // Another user may not reach its directory.
  if (user && (setgroups(0, nullptr) != 0 || setgid(*user) != 0 || setuid(*user) != 0)) _exit(126);
  fexecve(program, words.data(), environ);
  _exit(125);
}

GradmonctlProcess::~GradmonctlProcess() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  wait();
}

int GradmonctlProcess::wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/failpoints/failpoints.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string_view>

namespace gradmon {
namespace {

pid_t start(const FailpointRun& run) {
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(240);  // Survives exec, so that a program that hangs ends.
  const int out = open(run.output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  dup2(out, STDOUT_FILENO);
  dup2(out, STDERR_FILENO);
  for (const auto& [name, value] : run.environment) setenv(name.c_str(), value.c_str(), 1);
  setenv("LD_PRELOAD", GRADMON_FAILPOINT_CALLS, 1);
  setenv("ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0", 1);
  setenv("GRADMON_FAILPOINT_BELOW", run.below.c_str(), 1);
  setenv("GRADMON_FAILPOINT_LOG", run.call_log.c_str(), 1);
  setenv("GRADMON_FAILPOINTS", run.points.c_str(), 1);
  std::vector<char*> arguments;
  for (const std::string& argument : run.command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  execv(arguments[0], arguments.data());
  _exit(127);
}

}  // namespace

FailpointProcess::FailpointProcess(const FailpointRun& run) : pid_(start(run)) {}

FailpointProcess::~FailpointProcess() {
  if (ended_) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

FailpointProcess::State FailpointProcess::wait() {
  int status = 0;
  waitpid(pid_, &status, WUNTRACED);
  if (WIFSTOPPED(status)) return State::stopped;
  ended_ = true;
  code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (WIFEXITED(status)) return State::exited;
  return WTERMSIG(status) == SIGKILL ? State::killed : State::crashed;
}

void FailpointProcess::resume() { kill(pid_, SIGCONT); }

std::vector<std::string> read_lines(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string test_program(const std::string& name) { return std::string(GRADMON_BIN) + "/" + name; }

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>

namespace gradmon {

// A forked child that only waits, as a data loader's worker would. It ends with this object, or with the
// thread that created it. The constructor throws if fork(2) fails: kill(-1) would end every process.
class PausedChild {
 public:
  PausedChild() : pid_(::fork()) {
    if (pid_ < 0) throw std::runtime_error("fork() has failed");
    if (pid_ > 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) ::pause();
  }
  ~PausedChild() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  PausedChild(const PausedChild&) = delete;
  PausedChild& operator=(const PausedChild&) = delete;

 private:
  const pid_t pid_;
};

}  // namespace gradmon

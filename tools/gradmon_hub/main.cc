// SPDX-License-Identifier: Apache-2.0
// gradmon-hub /DIRECTORY LAUNCH_ID: the process beside training that serves one job
// on one host. The job's ranks start it; users do not.
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <system_error>

#include "control/host/bounded_log.h"
#include "control/host/child_process.h"
#include "control/host/job_directory.h"
#include "control/hub/hub.h"
#include "control/log.h"

namespace {

gradmon::BoundedLog* hub_log = nullptr;  // never freed: threads may log until the process ends

void write_line(gradmon::LogLevel level, std::string_view text) {
  constexpr const char* names[] = {"debug", "info", "warn", "error"};
  static const bool debug = [] {
    const char* wanted = std::getenv("GRADMON_LOG");
    return wanted != nullptr && std::string(wanted) == "debug";
  }();
  if (level == gradmon::LogLevel::debug && !debug) return;
  hub_log->write(std::string(names[static_cast<int>(level)]) + " " + std::string(text));
}

void bound_resources() {
#ifndef GRADMON_UNBOUNDED_MEMORY
  gradmon::set_soft_limit(RLIMIT_AS, rlim_t{2} << 30U);
#endif
  // Else glibc raises the limit with each block that is freed, and keeps the memory of a flood's frames.
  mallopt(M_MMAP_THRESHOLD, 128 * 1024);
  gradmon::set_soft_limit(RLIMIT_NOFILE, RLIM_INFINITY);
  // When memory is short, the kernel must kill the hub rather than training.
  if (const int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC); fd >= 0) {
    [[maybe_unused]] const ssize_t n = write(fd, "1000", 4);
    close(fd);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 || argv[1][0] != '/') {
    std::fputs("usage: gradmon-hub /DIRECTORY LAUNCH_ID (started by the ranks of a job)\n", stderr);
    return 2;
  }
  const pid_t child = fork();
  if (child != 0) return child < 0 ? 1 : 0;  // The hub must not stay a child of the rank.
  signal(SIGPIPE, SIG_IGN);
  prctl(PR_SET_NAME, "gradmon-hub");
  bound_resources();
  gradmon::JobDirectory directory{argv[1]};
  if (chdir("/") != 0) return 1;
  hub_log = new gradmon::BoundedLog(directory.log());
  gradmon::set_log_sink(write_line);
  try {
    std::error_code unknown;
    const auto program = std::filesystem::read_symlink("/proc/self/exe", unknown);
    auto hub = gradmon::Hub::open(directory, argv[2], program.parent_path() / "gradmonctl");
    if (!hub) {
      if (hub.error().kind == gradmon::HubLock::Failure::Kind::error) gradmon::log_error(hub.error().reason);
      return 1;
    }
    (*hub)->run();
  } catch (const std::exception& error) {
    gradmon::log_error(std::string("the hub stops: ") + error.what());
    return 1;
  }
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
#include <sys/socket.h>

#include <fstream>
#include <stdexcept>
#include <thread>

#include "control/files/descriptor.h"
#include "control/host/unix_socket.h"
#include "tests/benchmarks/benches.h"
#include "tests/benchmarks/eight_ranks.h"
#include "tests/benchmarks/measure/range.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

pid_t hub_of(const EightRanks& job) {
  const auto fd = connect_unix(job.socket());
  if (!fd) throw std::runtime_error(fd.error());
  const Descriptor socket(*fd);
  ucred who{};
  socklen_t size = sizeof who;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) throw std::runtime_error("no hub");
  return who.pid;
}

// Processor time of all threads, in seconds.
double processor_time(pid_t pid) {
  double total = 0;
  for (const auto& task : fs::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    double nanoseconds = 0;
    std::ifstream(task.path() / "schedstat") >> nanoseconds;
    total += nanoseconds / 1e9;
  }
  return total;
}

double resident_megabytes(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string word; status >> word;) {
    double kilobytes = 0;
    if (word == "VmRSS:" && status >> kilobytes) return kilobytes / 1024;
  }
  throw std::runtime_error("no VmRSS");
}

std::vector<Figure> measure(Effort effort) {
  const double seconds = effort == Effort::quick ? 1 : 20;
  const EightRanks job(std::chrono::milliseconds(25));
  const pid_t hub = hub_of(job);
  const double before = processor_time(hub);
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  Figure load;
  load.name = "hub_idle_percent";
  load.value = 100 * (processor_time(hub) - before) / seconds;
  load.unit = "% of a core";
  load.goal = Goal{Goal::Sense::at_most, 0.1};
  load.how = "gradmon-hub beside 8 ranks that are off, over " + text_of(seconds) + " s";
  Figure memory;
  memory.name = "hub_resident_mb";
  memory.value = resident_megabytes(hub);
  memory.unit = "MiB";
  memory.goal = Goal{Goal::Sense::at_most, 12};
  memory.how = "its resident memory then";
  return {load, memory};
}

}  // namespace

Bench hub_idle() { return {{"hub_idle_percent", "hub_resident_mb"}, measure}; }

}  // namespace gradmon

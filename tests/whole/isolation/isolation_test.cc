// SPDX-License-Identifier: Apache-2.0
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/real_job.h"
#include "tests/support/temporary_directory.h"
#include "tests/whole/availability/child_process.h"
#include "tests/whole/availability/training_checks.h"
#include "tests/whole/availability/training_job.h"

namespace gradmon {
namespace {

// --- The descriptors and threads of a process, from /proc.

struct Footprint {
  std::vector<std::string> descriptors;  // the kind of each, sorted: "socket", "file", "anon_inode:[eventfd]"
  int threads = 0;
};

namespace fs = std::filesystem;

Footprint footprint(pid_t pid) {
  const fs::path process = "/proc/" + std::to_string(pid);
  Footprint found;
  for (const auto& entry : fs::directory_iterator(process / "fd")) {
    std::error_code error;
    const std::string target = fs::read_symlink(entry.path(), error).string();
    if (error) continue;  // closed since
    const bool numbered = target.rfind("socket:", 0) == 0 || target.rfind("pipe:", 0) == 0;
    // Files have no name here: the names differ between processes.
    found.descriptors.push_back(numbered           ? target.substr(0, target.find(':'))
                                : target[0] == '/' ? "file"
                                                   : target);
  }
  std::sort(found.descriptors.begin(), found.descriptors.end());
  found.threads =
      static_cast<int>(std::distance(fs::directory_iterator(process / "task"), fs::directory_iterator()));
  return found;
}

// The descriptors of `more` that are not in `less`.
std::vector<std::string> additional_descriptors(const Footprint& more, const Footprint& less) {
  std::vector<std::string> result;
  std::set_difference(more.descriptors.begin(), more.descriptors.end(), less.descriptors.begin(),
                      less.descriptors.end(), std::back_inserter(result));
  return result;
}

// --- The descriptors and threads that gradmon takes in a rank's process, while off and while on.

using std::chrono::seconds;

ProcessResult output_of(std::vector<std::string> command) {
  ProcessOptions options;
  options.command = std::move(command);
  return run_process(options, seconds(30));
}

struct MonitoredRank {
  MonitoredRank() : places(directory.path()), job(places, alone()) {
    job.start_all();
    ProcessOptions options;
    options.command = {program("availability-trainer"), "--bare", "1", "--step-log",
                       (directory / "bare").string()};
    options.output = directory / "bare-output";
    options.environment = {{"OMP_NUM_THREADS", "1"}};  // as in TrainingJob
    bare = std::make_unique<ChildProcess>(options);
    REQUIRE(job.wait_until_running());
    REQUIRE(eventually([this] { return read_step_log(directory / "bare").lines.size() > 10; }));
  }
  static JobOptions alone() {
    JobOptions options;
    options.world = 1;
    return options;
  }
  pid_t pid() { return job.rank_process(0).process->pid(); }
  ProcessResult switch_plan(const char* verb) {
    return job.run_gradmonctl({verb, "--wait", "--timeout", "5"});
  }

  TemporaryDirectory directory;
  JobPlaces places;
  TrainingJob job;
  std::unique_ptr<ChildProcess> bare;
};

bool maps_zmq(pid_t pid) {
  return read_text("/proc/" + std::to_string(pid) + "/maps").find("libzmq") != std::string::npos;
}

TEST_CASE("gradmon brings no ZeroMQ into a rank's process") {
  MonitoredRank rank;
  // Debian's libtorch itself may load libzmq, also in bare training.
  CHECK(maps_zmq(rank.pid()) == maps_zmq(rank.bare->pid()));
  const ProcessResult needed = output_of({"objdump", "-p", program("availability-trainer")});
  CHECK(needed.code == 0);
  CHECK(needed.out.find("libzmq") == std::string::npos);
  for (const char* symbols : {"--dynamic", "--extern-only"}) {
    const ProcessResult answer = output_of({"nm", symbols, program("availability-trainer")});
    CHECK(answer.code == 0);
    CHECK(answer.out.find(" zmq_") == std::string::npos);
    CHECK(answer.out.find("_ZN3zmq") == std::string::npos);
  }
}

// The connection to the hub and the eventfd that wakes the agent; the threads are agent and writer.
TEST_CASE("a rank has one connection and two threads more than bare training") {
  MonitoredRank rank;
  const Footprint bare = footprint(rank.bare->pid());
  const Footprint idle = footprint(rank.pid());
  CAPTURE(additional_descriptors(idle, bare));
  CHECK(idle.threads - bare.threads <= 2);
  CHECK(additional_descriptors(idle, bare) == std::vector<std::string>{"anon_inode:[eventfd]", "socket"});

  REQUIRE(rank.switch_plan("on").code == 0);
  REQUIRE(eventually([&] { return rank.job.steps().at(0).lines.back().collected; }));
  const Footprint on = footprint(rank.pid());
  auto more = additional_descriptors(on, bare);
  more.erase(std::remove(more.begin(), more.end(), "file"), more.end());  // the CSV files
  CAPTURE(more, on.threads, idle.threads, bare.threads);
  CHECK(on.threads - bare.threads == 2);
  CHECK(more == std::vector<std::string>{"anon_inode:[eventfd]", "socket"});
}

// --- A Monitor that is created when almost no descriptors, memory or processes are left:
// monitoring may fail, training may not.

constexpr std::int64_t kSteps = 80;

struct LimitedJob {
  LimitedJob(const std::string& limit, int left)
      : places(directory.path(), user(left)), job(places, options(limit, left)) {
    job.start_all();
  }
  // RLIMIT_NPROC does not bind root, and counts all processes of a user: each job has a user of its own.
  static uid_t user(int left) { return static_cast<uid_t>(30'000 + getpid() % 3'000 * 10 + left); }
  static JobOptions options(const std::string& limit, int left) {
    JobOptions made;
    made.world = 1;
    made.user = user(left);
    made.trainer_arguments = {
        {0, {"--limit", limit, "--headroom", std::to_string(left), "--steps", std::to_string(kSteps)}}};
    return made;
  }

  TemporaryDirectory directory;
  JobPlaces places;
  TrainingJob job;
};

void train_with_limit(const std::string& limit) {
  if (geteuid() != 0) {
    WARN("skipped: needs root, for jobs of other users");
    return;
  }
  if (GRADMON_SANITIZED && limit != "nofile") {
    WARN("skipped: sanitizers take memory and start a process themselves");
    return;
  }
  std::list<std::pair<int, LimitedJob>> jobs;
  for (const int left : {0, 1, 2, 4, 8})
    jobs.emplace_back(std::piecewise_construct, std::forward_as_tuple(left),
                      std::forward_as_tuple(limit, left));
  for (auto& [left, limited] : jobs) {
    const auto code = limited.job.rank_process(0).process->wait(seconds(240));
    const std::map<int, std::optional<int>> codes{{0, code}};
    const auto different = different_ends(limited.job, codes);
    const auto steps = limited.job.steps().at(0).lines.size();
    std::cout << limit << ", " << left << " left: exit " << code.value_or(-1) << " after " << steps
              << " steps\n";
    CAPTURE(limit, left, different, limited.job.output());
    CHECK(different.empty());
    CHECK(steps == static_cast<std::size_t>(kSteps));
  }
}

TEST_CASE("training goes on where no descriptor is left for its Monitor") { train_with_limit("nofile"); }
TEST_CASE("training goes on where no memory is left for its Monitor") { train_with_limit("as"); }
TEST_CASE("training goes on where no process is left for its Monitor") { train_with_limit("nproc"); }

}  // namespace
}  // namespace gradmon

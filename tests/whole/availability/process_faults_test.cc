// SPDX-License-Identifier: Apache-2.0
// Faults of a rank's process and of its resources: standard error, descriptors, processes.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "control/debian_version.h"
#include "tests/support/real_job.h"
#include "tests/support/scale.h"
#include "tests/whole/availability/check_fault.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kFaultyRank = 2;

TEST_CASE("the other ranks train on when a rank is killed") {
  Fault fault;
  fault.name = "rank killed";
  fault.begin = [](FaultFixture& fixture) { fixture.job.kill_rank(kFaultyRank); };
  fault.status = rank_pattern("2", "ended|dropped|left|died");
  fault.not_compared = {kFaultyRank};
  check_fault(fault);
}

Fault rank_stopped(const std::string& name, seconds time) {
  Fault fault;
  fault.name = name;
  fault.begin = [](FaultFixture& fixture) { fixture.job.stop_rank(1); };
  fault.end = [](FaultFixture& fixture) { fixture.job.continue_rank(1); };
  fault.status = rank_pattern("1", "silent|heard|dropped|waiting|left out|answer|stepped");
  fault.duration = time;
  return fault;
}

TEST_CASE("training goes on when a rank is stopped for 4 s") {
  check_fault(rank_stopped("rank stopped 4 s", seconds(4)));
}
TEST_CASE("training goes on when a rank is stopped for 20 s") {
  if (scaled(0, 1) == 0) {
    WARN("skipped: GRADMON_TEST_SCALE=full only");
    return;
  }
  check_fault(rank_stopped("rank stopped 20 s", seconds(20)));
}

TEST_CASE("training goes on when a rank's connection to its hub is cut") {
  Fault fault;
  fault.name = "control connection cut";
  fault.begin = [](FaultFixture& fixture) {
    if (!fixture.job.cut_connection(1)) throw std::runtime_error("rank 1 has no connection to its hub");
  };
  check_fault(fault);
}

TEST_CASE("status names the ranks without a Monitor when only rank 0 creates one") {
  Fault fault;
  fault.name = "Monitor on rank 0 alone";
  fault.job.trainer_arguments = {{1, {"--bare", "1"}}, {2, {"--bare", "1"}}};
  fault.begin = [](FaultFixture& fixture) {
    if (!eventually([&] { return fixture.job.barrier().step(0) >= 5; }))
      throw std::runtime_error("rank 0 makes no steps");
  };
  fault.status = "waiting for ranks 1, 2";
  fault.recovery = Recovery::needs_restart;
  check_fault(fault);
}

// A new process takes seconds to load torch. Meanwhile the other ranks go on or wait, as
// without gradmon.
void wait_until_restarted(FaultFixture& fixture) {
  const bool steps = eventually(
      [&] {
        const auto content = fixture.job.steps().at(kFaultyRank);
        return content.start > 0 && !content.lines.empty() && content.lines.back().step >= content.start + 3;
      },
      seconds(60));
  if (!steps) throw std::runtime_error("rank 2 does not come back");
}

TEST_CASE("a rank that died and restarts at a later iteration collects again") {
  Fault fault;
  fault.name = "rank restarted at a later iteration";
  fault.begin = [](FaultFixture& fixture) {
    fixture.job.kill_rank(kFaultyRank);
    fixture.job.start(kFaultyRank, fixture.job.barrier().newest_step() + 30);
  };
  fault.end = wait_until_restarted;
  fault.further_checks = [](FaultFixture& fixture) {
    const auto content = fixture.job.steps().at(kFaultyRank);
    const bool collected = std::any_of(content.lines.begin(), content.lines.end(),
                                       [](const StepLine& line) { return line.collected; });
    return collected ? std::vector<std::string>{}
                     : std::vector<std::string>{"the rank that came back never collected"};
  };
  check_fault(fault);
}

TEST_CASE("training goes on when a rank executes itself by exec") {
  Fault fault;
  fault.name = "rank executes itself";
  fault.begin = [](FaultFixture& fixture) { fixture.job.rank_process(kFaultyRank).process->signal(SIGUSR1); };
  fault.end = wait_until_restarted;
  check_fault(fault);
}

TEST_CASE("training goes on with a rank in another pid namespace") {
  Fault fault;
  fault.name = "rank in another pid namespace";
  fault.job.command_prefix = {{1, {"unshare", "--pid", "--fork", "--kill-child"}}};
  fault.begin = [](FaultFixture&) {};
  check_fault(fault);
}

// The pipe for standard error: training writes to ends[1], ends[0] is to read from.
struct Pipe {
  Pipe() {
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe");
  }
  ~Pipe() {
    for (const int end : ends) {
      if (end >= 0) close(end);
    }
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  std::array<int, 2> ends{-1, -1};
};

// Saves a config with an unknown key, so that gradmon writes a warning.
void edit_that_warns(FaultFixture& fixture) {
  std::string text = read_text(fixture.places.config);
  text.insert(text.find('{') + 1, "\n  \"no_such_key\": 1,");
  write_text(fixture.places.config, text);
}

TEST_CASE("training goes on when standard error is a closed pipe") {
  const auto pipe = std::make_shared<Pipe>();
  Fault fault;
  fault.name = "stderr closed";
  fault.job.stderr_descriptor = pipe->ends[1];
  fault.begin = [pipe](FaultFixture& fixture) {
    close(std::exchange(pipe->ends[0], -1));
    edit_that_warns(fixture);
  };
  check_fault(fault);
}

TEST_CASE("training goes on when standard error is a full pipe") {
  const auto pipe = std::make_shared<Pipe>();
  Fault fault;
  fault.name = "stderr full";
  fault.job.stderr_descriptor = pipe->ends[1];
  fault.begin = [pipe](FaultFixture& fixture) {
    const int end =
        open(("/proc/self/fd/" + std::to_string(pipe->ends[1])).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    const std::array<char, 4096> block{};
    while (write(end, block.data(), block.size()) > 0) continue;
    while (write(end, block.data(), 1) > 0) continue;
    close(end);
    edit_that_warns(fixture);
  };
  check_fault(fault);
}

// Runs prlimit(1) as the job's user: even root may lack the right to another user's limits.
void limit_all(FaultFixture& fixture, const std::string& what, const std::string& most) {
  for (int rank = 0; rank < fixture.job.world(); ++rank) {
    ProcessOptions options;
    options.command = {"prlimit", "--pid", std::to_string(fixture.job.rank_process(rank).process->pid()),
                       "--" + what + "=" + most + ":"};
    options.user = fixture.job.options().user;
    const ProcessResult answer = run_process(options, seconds(5));
    if (answer.code != 0) throw std::runtime_error("prlimit: " + answer.err);
  }
}

Fault exhausted_limit(const std::string& name, const std::string& what, const std::string& again) {
  Fault fault;
  fault.name = name;
  fault.begin = [what](FaultFixture& fixture) { limit_all(fixture, what, "0"); };
  fault.end = [what, again](FaultFixture& fixture) { limit_all(fixture, what, again); };
  return fault;
}

// While the fault lasts no rank can start or reach a hub, so `off` cannot be decided.
// The other promises hold.
Fault with_hub_killed(Fault fault) {
  fault.begin = [before = fault.begin](FaultFixture& fixture) {
    before(fixture);
    fixture.job.signal_hub(SIGKILL);
  };
  fault.off = Off::cannot_be_decided;
  fault.duration = milliseconds(3'000);
  return fault;
}

// UBSan opens a pipe to see whether an object's memory can be read, and takes a failure for a bad object.
bool sanitizer_needs_descriptors() {
  if (GRADMON_SANITIZED) WARN("skipped: UBSan needs descriptors itself");
  return GRADMON_SANITIZED;
}

TEST_CASE("training goes on when its descriptors are used up") {
  if (sanitizer_needs_descriptors()) return;
  check_fault(exhausted_limit("descriptors used up", "nofile", "1024"));
}

TEST_CASE("training goes on when its descriptors are used up and the hub dies") {
  if (sanitizer_needs_descriptors()) return;
  check_fault(with_hub_killed(exhausted_limit("descriptors used up, hub dies", "nofile", "1024")));
}

TEST_CASE("training goes on when the hub dies and no process can be started") {
  Fault fault = with_hub_killed(exhausted_limit("no processes left, hub dies", "nproc", "10000"));
  // A user whose processes no other test counts: RLIMIT_NPROC covers the whole machine.
  fault.job.user = static_cast<uid_t>(20'000 + getpid() % 10'000);
  check_fault(fault);
}

}  // namespace
}  // namespace gradmon

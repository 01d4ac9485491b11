// SPDX-License-Identifier: Apache-2.0
// Faults of the hub and of the job directory, and two jobs with the same output directory.
#include <signal.h>

#include "control/debian_version.h"
#include "tests/support/real_job.h"
#include "tests/support/scale.h"
#include "tests/whole/availability/check_fault.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("training goes on when the hub is killed") {
  Fault fault;
  fault.name = "hub killed";
  fault.begin = [](FaultFixture& fixture) { fixture.job.signal_hub(SIGKILL); };
  check_fault(fault);
}

Fault hub_stopped(const std::string& name, milliseconds time) {
  Fault fault;
  fault.name = name;
  fault.begin = [](FaultFixture& fixture) { fixture.job.signal_hub(SIGSTOP); };
  fault.end = [](FaultFixture& fixture) { fixture.job.signal_hub(SIGCONT); };
  fault.duration = time;
  return fault;
}

TEST_CASE("training goes on when the hub is stopped for 3 s") {
  check_fault(hub_stopped("hub stopped 3 s", seconds(3)));
}

// No hub can decide off: the leases end the collecting.
TEST_CASE("no rank collects without a lease when the hub is stopped for 20 s") {
  if (scaled(0, 1) == 0) {
    WARN("skipped: GRADMON_TEST_SCALE=full only");
    return;
  }
  auto began = std::make_shared<std::int64_t>();
  Fault fault = hub_stopped("hub stopped 20 s", seconds(20));
  fault.off = Off::cannot_be_decided;
  fault.begin = [began](FaultFixture& fixture) {
    *began = monotonic_us();
    fixture.job.signal_hub(SIGSTOP);
  };
  fault.further_checks = [began](FaultFixture& fixture) {
    constexpr std::int64_t kLease = 10'250'000;  // us: the lease of 10 s, and 250 ms for a step
    constexpr std::int64_t kStopped = 20'000'000;
    std::vector<std::string> violations;
    for (const auto& [rank, content] : fixture.job.steps()) {
      for (const StepLine& line : content.lines) {
        const std::int64_t after = line.called_at - *began;
        if (!line.collected || after < kLease || after > kStopped) continue;
        violations.push_back("rank " + std::to_string(rank) + " collects without a lease");
        break;
      }
    }
    return violations;
  };
  check_fault(fault);
}

TEST_CASE("training goes on when somebody removes the job directory") {
  Fault fault;
  fault.name = "job directory removed";
  fault.begin = [](FaultFixture& fixture) {
    std::error_code failed;
    do {  // until the hub puts nothing into it meanwhile
      fs::remove_all(fixture.job.job_directory(), failed);
    } while (failed == std::errc::directory_not_empty);
    if (failed) throw fs::filesystem_error("remove_all", fixture.job.job_directory(), failed);
  };
  check_fault(fault);
}

TEST_CASE("two jobs train on with one output directory and one config") {
  Fault fault;
  fault.name = "two jobs in one place";
  fault.job.world = 2;
  fault.prepare = [](FaultFixture& fixture) {
    JobOptions options;
    options.world = 2;
    options.launch_id = "second";
    fixture.second_job = std::make_unique<TrainingJob>(fixture.places, options);
    fixture.second_job->ask_by_socket();
    fixture.job.ask_by_socket();
  };
  fault.begin = [](FaultFixture& fixture) {
    fixture.second_job->start_all();
    if (!fixture.second_job->wait_until_running()) throw std::runtime_error("the second job does not run");
  };
  fault.status = "second|another job|two jobs|other job";
  check_fault(fault);
}

}  // namespace
}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// Faults of the hub and its directory, and two jobs in one place.
#include <signal.h>

#include "control/debian_version.h"
#include "tests/whole/availability/availability.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("the hub is killed") {
  Fault fault;
  fault.name = "hub killed";
  fault.begin = [](Scene& scene) { scene.job.signal_hub(SIGKILL); };
  check(fault);
}

Fault stopped(const std::string& name, milliseconds time) {
  Fault fault;
  fault.name = name;
  fault.begin = [](Scene& scene) { scene.job.signal_hub(SIGSTOP); };
  fault.end = [](Scene& scene) { scene.job.signal_hub(SIGCONT); };
  fault.lasts = time;
  return fault;
}

TEST_CASE("the hub stands still for 3 s") { check(stopped("hub stopped 3 s", seconds(3))); }

// The lease is what ends collecting then.
TEST_CASE("the hub stands still for 20 s") {
  if (!full_scale()) return;
  auto began = std::make_shared<std::int64_t>();
  Fault fault = stopped("hub stopped 20 s", seconds(20));
  fault.off = Off::cannot_be_decided;
  fault.begin = [began](Scene& scene) {
    *began = monotonic_us();
    scene.job.signal_hub(SIGSTOP);
  };
  fault.besides = [began](Scene& scene) {
    constexpr std::int64_t kLease = 10'250'000;  // us, and a step
    constexpr std::int64_t kStopped = 20'000'000;
    std::vector<std::string> broken;
    for (const auto& [rank, content] : scene.job.steps()) {
      for (const StepLine& line : content.lines) {
        const std::int64_t after = line.called - *began;
        if (!line.collected || after < kLease || after > kStopped) continue;
        broken.push_back("rank " + std::to_string(rank) + " collects without a lease");
        break;
      }
    }
    return broken;
  };
  check(fault);
}

TEST_CASE("somebody removes the job's directory") {
  Fault fault;
  fault.name = "job directory removed";
  fault.begin = [](Scene& scene) { fs::remove_all(scene.job.job_directory()); };
  check(fault);
}

TEST_CASE("two jobs share one output directory and one config") {
  Fault fault;
  fault.name = "two jobs in one place";
  fault.job.world = 2;
  fault.prepare = [](Scene& scene) {
    JobOptions options;
    options.world = 2;
    options.launch = "second";
    scene.second_job = std::make_unique<TrainingJob>(scene.places, options);
    scene.second_job->ask_by_socket();
    scene.job.ask_by_socket();
  };
  fault.begin = [](Scene& scene) {
    scene.second_job->start_all();
    if (!scene.second_job->wait_until_it_runs()) throw std::runtime_error("the second job does not run");
  };
  fault.status = "second|another job|two jobs|other job";
  check(fault);
}

}  // namespace
}  // namespace gradmon

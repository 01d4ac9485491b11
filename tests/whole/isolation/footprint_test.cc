// SPDX-License-Identifier: Apache-2.0
// The descriptors, threads and memory that gradmon takes in a rank's process: while off,
// while on, and while hostile clients attack the hub.
#include "tests/whole/isolation/footprint.h"
#include "tests/support/scale.h"

#include <poll.h>

#include <algorithm>
#include <iostream>

#include "control/debian_version.h"
#include "tests/support/real_job.h"
#include "tests/support/temporary_directory.h"
#include "tests/whole/availability/child_process.h"
#include "tests/whole/availability/stalls.h"
#include "tests/whole/availability/training_ends.h"
#include "tests/whole/availability/training_job.h"
#include "tests/whole/isolation/hostile_clients.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Address space, or memory, that training's own heap may take meanwhile. AddressSanitizer keeps what is
// freed.
constexpr std::int64_t kMaxRankGrowth = std::int64_t{GRADMON_SANITIZED ? 64 : 1} << 20U;
constexpr std::int64_t kMaxHubGrowth = std::int64_t{GRADMON_SANITIZED ? 512 : 64} << 20U;
constexpr int kHostile = 1'000;

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

void attack(HostileClients::Kind kind) {
  MonitoredRank rank;
  REQUIRE(rank.switch_plan("on").code == 0);
  REQUIRE(rank.switch_plan("off").code == 0);
  const Footprint before = footprint(rank.pid());
  const pid_t hub = rank.job.hub();
  REQUIRE(hub > 0);
  const Footprint hub_before = footprint(hub);
  const std::int64_t began = monotonic_us();
  {
    HostileClients hostile(rank.job.socket(), kind, kHostile);
    const auto until = std::chrono::steady_clock::now() + seconds(scaled(4, 30));
    ProcessResult slowest;
    while (std::chrono::steady_clock::now() < until) {
      const ProcessResult answer = rank.job.run_gradmonctl({"status"}, seconds(5));
      if (answer.took > slowest.took || answer.code != 0) slowest = answer;
      if (answer.code != 0) break;
      ::poll(nullptr, 0, 200);
    }
    CAPTURE(slowest.out, slowest.err, slowest.took.count());
    CHECK(slowest.code == 0);
    const Footprint after = footprint(rank.pid());
    CHECK(after.address_space - before.address_space <= kMaxRankGrowth);
    CHECK(after.memory - before.memory <= kMaxRankGrowth);
    CHECK(after.threads == before.threads);
    CHECK(additional_descriptors(after, before).empty());
    REQUIRE(rank.job.hub() == hub);  // The attack has not ended the hub.
    const Footprint hub_after = footprint(hub);
    std::cout << kHostile << " hostile connections: " << (hostile.sent() >> 20U) << " MiB sent, the hub took "
              << (hub_after.memory - hub_before.memory) / 1024 << " KiB, slowest status "
              << slowest.took.count() << " ms\n";
    CHECK(hub_after.memory - hub_before.memory <= kMaxHubGrowth);
    const ProcessResult on = rank.switch_plan("on");
    CAPTURE(on.err);
    CHECK(on.code == 0);
  }
  ProcessResult off;
  const bool is_off = eventually([&] { return (off = rank.switch_plan("off")).code == 0; }, seconds(5));
  CAPTURE(off.err);
  CHECK(is_off);
  const std::int64_t until = monotonic_us();
  const auto codes = rank.job.end(seconds(20));
  CHECK(different_ends(rank.job, codes).empty());
  const auto felt = stalls(rank.job, began, until);
  CAPTURE(to_string(felt));
  CHECK(bound_violations(felt, {}).empty());
}

TEST_CASE("a thousand silent clients of the hub cost the rank nothing and commands work") {
  attack(HostileClients::Kind::idle);
}
TEST_CASE("a thousand clients that send to the hub without end cost the rank nothing and commands work") {
  attack(HostileClients::Kind::endless);
}
TEST_CASE("a thousand clients that send garbage to the hub cost the rank nothing and commands work") {
  attack(HostileClients::Kind::garbage);
}
TEST_CASE("a thousand clients of the hub that never read cost the rank nothing and commands work") {
  attack(HostileClients::Kind::no_reader);
}

}  // namespace
}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// What a rank's process has of gradmon beyond its own training, at rest, on, and
// while its hub is attacked.
#include "tests/whole/isolation/footprint.h"

#include <poll.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include "tests/whole/availability/child.h"
#include "tests/whole/availability/stalls.h"
#include "tests/whole/availability/training_ends.h"
#include "tests/whole/availability/training_job.h"
#include "tests/whole/isolation/hostile_clients.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Of the address space: what training's own heap takes in that time.
constexpr std::int64_t kOwnGrowth = std::int64_t{1} << 20U;
constexpr std::int64_t kHubMayTake = std::int64_t{64} << 20U;
constexpr int kHostile = 1'000;

bool full_scale() {
  const char* scale = std::getenv("GRADMON_TEST_SCALE");
  return scale != nullptr && std::string(scale) == "full";
}

Answer output_of(std::vector<std::string> command) {
  ChildOptions options;
  options.command = std::move(command);
  return answer_of(options, seconds(30));
}

struct Rank {
  Rank() : places(directory.path()), job(places, alone()) {
    job.start_all();
    ChildOptions options;
    options.command = {test_binary("availability-trainer"), "--bare", "1", "--step-log",
                       (directory / "bare").string()};
    options.output = directory / "bare-output";
    options.environment = {{"OMP_NUM_THREADS", "1"}};  // as the job's
    bare = std::make_unique<Child>(options);
    REQUIRE(job.wait_until_it_runs());
    REQUIRE(eventually([this] { return read_step_log(directory / "bare").lines.size() > 10; }));
  }
  static JobOptions alone() {
    JobOptions options;
    options.world = 1;
    return options;
  }
  pid_t pid() { return job.life(0).process->pid(); }
  Answer switch_it(const char* verb) { return job.ctl({verb, "--wait", "--timeout", "5"}); }

  TemporaryDirectory directory;
  JobPlaces places;
  TrainingJob job;
  std::unique_ptr<Child> bare;
};

bool maps_zmq(pid_t pid) {
  return read_text("/proc/" + std::to_string(pid) + "/maps").find("libzmq") != std::string::npos;
}

TEST_CASE("a rank has no ZeroMQ in its process") {
  Rank rank;
  // Debian's libtorch brings one of its own, which nobody calls.
  CHECK(maps_zmq(rank.pid()) == maps_zmq(rank.bare->pid()));
  const Answer needed = output_of({"objdump", "-p", test_binary("availability-trainer")});
  CHECK(needed.code == 0);
  CHECK(needed.out.find("libzmq") == std::string::npos);
  for (const char* symbols : {"--dynamic", "--extern-only"}) {
    const Answer answer = output_of({"nm", symbols, test_binary("availability-trainer")});
    CHECK(answer.code == 0);
    CHECK(answer.out.find(" zmq_") == std::string::npos);
    CHECK(answer.out.find("_ZN3zmq") == std::string::npos);
  }
}

// One connection and the descriptor that wakes the agent; agent and writer.
TEST_CASE("a rank has one connection and two threads more than bare training") {
  Rank rank;
  const Footprint bare = footprint(rank.bare->pid());
  const Footprint idle = footprint(rank.pid());
  CAPTURE(beyond(idle, bare));
  CHECK(idle.threads - bare.threads <= 2);
  CHECK(beyond(idle, bare) == std::vector<std::string>{"anon_inode:[eventfd]", "socket"});

  REQUIRE(rank.switch_it("on").code == 0);
  REQUIRE(eventually([&] { return rank.job.steps().at(0).lines.back().collected; }));
  const Footprint on = footprint(rank.pid());
  auto more = beyond(on, bare);
  more.erase(std::remove(more.begin(), more.end(), "file"), more.end());  // of the sinks
  CAPTURE(more, on.threads, idle.threads, bare.threads);
  CHECK(on.threads - bare.threads == 2);
  CHECK(more == std::vector<std::string>{"anon_inode:[eventfd]", "socket"});
}

void attack(HostileClients::Kind kind) {
  Rank rank;
  REQUIRE(rank.switch_it("on").code == 0);
  REQUIRE(rank.switch_it("off").code == 0);
  const Footprint before = footprint(rank.pid());
  const Footprint hub_before = footprint(rank.job.hub());
  const std::int64_t began = monotonic_us();
  {
    HostileClients hostile(rank.job.socket(), kind, kHostile);
    const auto until = std::chrono::steady_clock::now() + seconds(full_scale() ? 30 : 4);
    Answer slowest;
    while (std::chrono::steady_clock::now() < until) {
      const Answer answer = rank.job.ctl({"status"}, seconds(5));
      if (answer.took > slowest.took || answer.code != 0) slowest = answer;
      if (answer.code != 0) break;
      ::poll(nullptr, 0, 200);
    }
    CAPTURE(slowest.out, slowest.err, slowest.took.count());
    CHECK(slowest.code == 0);
    const Footprint after = footprint(rank.pid());
    CHECK(after.address_space - before.address_space <= kOwnGrowth);
    CHECK(after.memory - before.memory <= kOwnGrowth);
    CHECK(after.threads == before.threads);
    CHECK(beyond(after, before).empty());
    const pid_t hub = rank.job.hub();
    REQUIRE(hub > 0);
    const Footprint hub_after = footprint(hub);
    std::cout << kHostile << " hostile connections: " << (hostile.sent() >> 20U) << " MiB sent, the hub took "
              << (hub_after.memory - hub_before.memory) / 1024 << " KiB, slowest status "
              << slowest.took.count() << " ms\n";
    CHECK(hub_after.memory - hub_before.memory <= kHubMayTake);
    const Answer on = rank.switch_it("on");
    CAPTURE(on.err);
    CHECK(on.code == 0);
  }
  Answer off;
  CHECK(eventually([&] { return (off = rank.switch_it("off")).code == 0; }, seconds(5)));
  CAPTURE(off.err);
  const std::int64_t until = monotonic_us();
  const auto codes = rank.job.end(seconds(20));
  CHECK(different_ends(rank.job, codes).empty());
  const auto felt = stalls(rank.job, began, until);
  CAPTURE(to_string(felt));
  CHECK(broken_bounds(felt, {}).empty());
}

TEST_CASE("a thousand connections to the hub that say nothing") { attack(HostileClients::Kind::idle); }
TEST_CASE("a thousand connections to the hub that send without end") {
  attack(HostileClients::Kind::endless);
}
TEST_CASE("a thousand connections to the hub that send garbage") { attack(HostileClients::Kind::garbage); }
TEST_CASE("a thousand connections to the hub that never read") { attack(HostileClients::Kind::no_reader); }

}  // namespace
}  // namespace gradmon

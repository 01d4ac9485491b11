// SPDX-License-Identifier: Apache-2.0
// Attacks over loopback TCP on a training job, by processes without a key.
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "control/debian_version.h"
#include "tests/support/process_figures.h"
#include "tests/support/scale.h"
#include "tests/whole/hostile/attack.h"
#include "tests/whole/hostile/harm_check.h"
#include "tests/whole/hostile/keyed_job.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kMib = std::uint64_t{1} << 20U;
constexpr std::uint64_t kGib = std::uint64_t{1} << 30U;

TEST_CASE("500 idle peers that always reconnect disturb neither training nor honest clients") {
  const KeyedJob job(2);
  const HarmCheck harm(job);
  {
    // More than 500: at any time some are closed and not yet connected again.
    Attack idle([&] { return hold_idle_peers(job.port(), 750); });
    REQUIRE(eventually([&] { return descriptors_of(job.hub()) >= 500; }));
    harm.check("500 idle peers");
    CHECK(idle.running());
  }
  REQUIRE(eventually([&] { return descriptors_of(job.hub()) < 100; }));
  const Status after = job.status();
  REQUIRE(after.ranks.size() == 2);
  CHECK(after.ranks[1].state == "idle");
}

TEST_CASE("a huge frame is cut off before 64 MiB of it are sent") {
  const KeyedJob job(1);
  const HarmCheck harm(job);
  CHECK(Attack([&] { return send_frame(job.port(), 64 * kMib + 1, 64 * kMib); }).wait() == 0);
  CHECK(Attack([&] { return send_frame(job.port(), 8 * kGib, 64 * kMib); }).wait() == 0);
  harm.check("a frame of 64 MiB, a header of 8 GiB");
}

TEST_CASE("unfinished frames of the greatest allowed length do not fill the hub's memory") {
  const KeyedJob job(1);
  const HarmCheck harm(job);
  {
    const std::size_t before = descriptors_of(job.hub());
    Attack frames([&] { return hold_unfinished_frames(job.port(), 200, 2 * kMib); });
    REQUIRE(eventually([&] { return descriptors_of(job.hub()) >= before + 5; }));
    for (int i = 0; i < 4; ++i) harm.check("200 peers with 2 MiB of one frame each");
    CHECK(frames.running());
  }
  harm.check("after 200 peers with 2 MiB of one frame each");
}

TEST_CASE("thousands of connections with random bytes harm neither training nor honest clients") {
  const int connections = scaled(2'000, 10'000);
  const KeyedJob job(1);
  const HarmCheck harm(job);
  constexpr int attackers = 4;
  const int each = connections / attackers;
  std::vector<std::unique_ptr<Attack>> attacks;
  for (unsigned seed = 0; seed < attackers; ++seed)
    attacks.push_back(std::make_unique<Attack>([&, seed] { return send_noise(job.port(), each, seed); }));
  harm.check("during connections of noise");
  for (const auto& attack : attacks) CHECK(attack->wait() == 0);
  harm.check("after connections of noise");
}

TEST_CASE("a flood of peers leaves the hub free descriptors and the ranks their connections") {
  // In this order: a hard limit below the soft one is refused.
  const KeyedJob job(2, "ulimit -Sn 256; ulimit -Hn 1200;");
  CHECK(descriptor_limit_of(job.rank0()) == 256);  // The hub raises its own limit only.
  REQUIRE(descriptor_limit_of(job.hub()) == 1200);
  const HarmCheck harm(job);
  const std::int64_t before = job.step();
  std::size_t most = 0;
  {
    std::vector<std::unique_ptr<Attack>> floods;
    for (int i = 0; i < 4; ++i)
      floods.push_back(std::make_unique<Attack>([&] { return hold_idle_peers(job.port(), 500); }));
    const pid_t hub = job.hub();
    const auto until = Clock::now() + std::chrono::seconds(6);
    while (Clock::now() < until) most = std::max(most, descriptors_of(hub));
    harm.check_training("a flood of 2,000 peers");
    CHECK(job.local_status().ranks.size() == 2);  // Ranks and gradmonctl use the Unix socket.
  }
  WARN("a flood of 2,000 peers: at most " << most << " of 1200 descriptors in use");
  CHECK(job.hub_log().find("new connections are refused") != std::string::npos);
  CHECK(most < 1200 - 64);
  CHECK(eventually([&] { return job.step() > before; }));
  const Status after = job.status();
  REQUIRE(after.ranks.size() == 2);
  CHECK(after.ranks[1].state == "idle");
  CHECK(after.ranks[1].last_seen_ms < 5000);
}

}  // namespace
}  // namespace gradmon

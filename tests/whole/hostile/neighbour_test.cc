// SPDX-License-Identifier: Apache-2.0
// Attacks over loopback TCP on a job that trains, by whoever has no key.
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "control/debian_version.h"
#include "tests/support/process_figures.h"
#include "tests/whole/hostile/attack.h"
#include "tests/whole/hostile/keyed_job.h"
#include "tests/whole/hostile/unharmed.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kMib = std::uint64_t{1} << 20U;
constexpr std::uint64_t kGib = std::uint64_t{1} << 30U;

TEST_CASE("five hundred idle peers who always come again disturb neither training nor an honest client") {
  const KeyedJob job(2);
  const Unharmed unharmed(job);
  {
    // More than are counted: some are always on their way, thrown out or coming again.
    const Attack idle([&] { return hold_idle_peers(job.port(), 750); });
    REQUIRE(eventually([&] { return descriptors_of(job.hub()) >= 500; }));
    unharmed.check("500 idle peers");
  }
  REQUIRE(eventually([&] { return descriptors_of(job.hub()) < 100; }));
  const Status after = job.status();
  REQUIRE(after.ranks.size() == 2);
  CHECK(after.ranks[1].state == "idle");
}

TEST_CASE("a huge frame is cut off at once") {
  const KeyedJob job(1);
  const Unharmed unharmed(job);
  CHECK(Attack([&] { return send_frame(job.port(), 64 * kMib + 1, 64 * kMib); }).wait() == 0);
  CHECK(Attack([&] { return send_frame(job.port(), 8 * kGib, 64 * kMib); }).wait() == 0);
  unharmed.check("a frame of 64 MiB, a header of 8 GiB");
}

TEST_CASE("frames as long as a message may be from peers without a key fill no memory") {
  const KeyedJob job(1);
  const Unharmed unharmed(job);
  {
    const Attack frames([&] { return hold_begun_frames(job.port(), 200, 2 * kMib); });
    for (int i = 0; i < 4; ++i) unharmed.check("200 peers with 2 MiB of one frame each");
  }
  unharmed.check("after 200 peers with 2 MiB of one frame each");
}

TEST_CASE("thousands of connections of random bytes change nothing") {
  const char* const scale = std::getenv("GRADMON_TEST_SCALE");
  const int connections = scale != nullptr && std::string(scale) == "full" ? 10'000 : 2'000;
  const KeyedJob job(1);
  const Unharmed unharmed(job);
  constexpr int attackers = 4;
  const int each = connections / attackers;
  std::vector<std::unique_ptr<Attack>> attacks;
  for (unsigned seed = 0; seed < attackers; ++seed)
    attacks.push_back(std::make_unique<Attack>([&, seed] { return send_noise(job.port(), each, seed); }));
  unharmed.check("during connections of noise");
  for (const auto& attack : attacks) CHECK(attack->wait() == 0);
  unharmed.check("after connections of noise");
}

TEST_CASE("a flood of peers leaves the hub its descriptors and the ranks their connections") {
  // In this order: a hard limit below the soft one is refused.
  const KeyedJob job(2, "ulimit -Sn 256; ulimit -Hn 1200;");
  CHECK(descriptor_limit_of(job.rank0()) == 256);  // Nothing of training's is raised.
  REQUIRE(descriptor_limit_of(job.hub()) == 1200);
  const Unharmed unharmed(job);
  const std::int64_t before = job.step();
  std::size_t most = 0;
  {
    std::vector<std::unique_ptr<Attack>> floods;
    for (int i = 0; i < 4; ++i)
      floods.push_back(std::make_unique<Attack>([&] { return hold_idle_peers(job.port(), 500); }));
    const pid_t hub = job.hub();
    const auto until = Clock::now() + std::chrono::seconds(6);
    while (Clock::now() < until) most = std::max(most, descriptors_of(hub));
    unharmed.check_training("a flood of 2,000 peers");
    CHECK(job.local_status().ranks.size() == 2);  // The ranks' and gradmonctl's way in is another.
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

// SPDX-License-Identifier: Apache-2.0
// Attacks over loopback TCP on a job that trains, with keys.
#include <algorithm>
#include <vector>

#include "control/debian_version.h"
#include "tests/hostile/attack.h"
#include "tests/hostile/keyed_job.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

#ifdef __SANITIZE_ADDRESS__
constexpr double kMostGrowthMib = 1e6;  // AddressSanitizer keeps what has been freed
#else
constexpr double kMostGrowthMib = 16;
#endif
constexpr std::uint64_t kMib = std::uint64_t{1} << 20U;
constexpr std::uint64_t kGib = std::uint64_t{1} << 30U;

// The shortest time in which an honest client gets its answer; other work on
// this machine may delay any single one.
milliseconds served_within(const KeyedJob& job) {
  milliseconds best{60'000};
  for (int i = 0; i < 8 && best > milliseconds(1000); ++i) {
    const auto asked = Clock::now();
    if (job.step() >= 0) best = std::min(best, std::chrono::ceil<milliseconds>(Clock::now() - asked));
  }
  return best;
}

// What must hold during and after every attack.
class Watch {
 public:
  explicit Watch(const KeyedJob& job) : job_(job), before_(job.resident_mib()), step_(job.step()) {}

  void check(const char* what) {
    const milliseconds served = served_within(job_);
    const double growth = job_.resident_mib() - before_;
    WARN(what << ": an honest client is served within " << served.count() << " ms, resident memory grew by "
              << growth << " MiB, " << job_.descriptors() << " descriptors");
    CHECK(served <= milliseconds(1000));
    CHECK(growth <= kMostGrowthMib);
    const std::int64_t seen = step_;
    CHECK(eventually([&] { return (step_ = job_.step()) > seen; }));
  }

 private:
  const KeyedJob& job_;
  const double before_;
  std::int64_t step_;
};

TEST_CASE("five hundred idle peers who always come again disturb neither training nor an honest client") {
  const KeyedJob job(2);
  Watch watch(job);
  {
    // More than are counted: some are always on their way, thrown out or coming again.
    const Attack idle([&] { return hold_idle_peers(job.port(), 750); });
    REQUIRE(eventually([&] { return job.descriptors() >= 500; }));
    watch.check("500 idle peers");
    const Attack beside([&] { return hold_idle_peers(job.state_port(), 200); });
    REQUIRE(eventually([&] { return job.descriptors() >= 500; }));
    watch.check("500 idle peers, and more where the state is told");
  }
  REQUIRE(eventually([&] { return job.descriptors() < 100; }));
  const Status after = job.status();
  REQUIRE(after.ranks.size() == 2);
  CHECK(after.ranks[1].state == "idle");
}

TEST_CASE("a huge subscription and a huge frame are cut off at once") {
  const KeyedJob job(1);
  Watch watch(job);
  for (const std::uint16_t port : {job.port(), job.state_port()}) {
    CHECK(Attack([port] { return send_frame(port, 64 * kMib + 1, 64 * kMib); }).wait() == 0);
    CHECK(Attack([port] { return send_frame(port, 8 * kGib, 64 * kMib); }).wait() == 0);
  }
  watch.check("64 MiB subscription and 8 GiB header");
}

TEST_CASE("ten thousand connections of random bytes change nothing") {
  const KeyedJob job(1);
  Watch watch(job);
  constexpr int attackers = 4;
  const int each = 10'000 / attackers;
  std::vector<std::unique_ptr<Attack>> attacks;
  for (unsigned seed = 0; seed < attackers; ++seed) {
    const std::uint16_t port = seed % 2 == 0 ? job.port() : job.state_port();
    attacks.push_back(std::make_unique<Attack>([port, each, seed] { return send_noise(port, each, seed); }));
  }
  watch.check("during 10,000 connections of noise");
  for (const auto& attack : attacks) CHECK(attack->wait() == 0);
  watch.check("after 10,000 connections of noise");
}

TEST_CASE("a flood of peers leaves training its descriptors and the ranks their connections") {
  // In this order: a hard limit below the soft one is refused.
  const KeyedJob job(2, "ulimit -Sn 256; ulimit -Hn 1200;");
  REQUIRE(job.descriptor_limit() == 1200);  // The soft one was raised to the hard one.
  std::size_t most = 0;
  const std::int64_t before = job.step();
  {
    std::vector<std::unique_ptr<Attack>> floods;
    for (int i = 0; i < 4; ++i)
      floods.push_back(std::make_unique<Attack>([&] { return hold_idle_peers(job.port(), 500); }));
    const auto until = Clock::now() + std::chrono::seconds(6);
    while (Clock::now() < until) most = std::max(most, job.descriptors());
  }
  WARN("a flood of 2,000 peers: at most " << most << " of 1200 descriptors in use");
  CHECK(job.job().log().find("taking no more for now") != std::string::npos);
  CHECK(most < 1200 - 64);
  CHECK(eventually([&] { return job.step() > before; }));
  const Status after = job.status();
  REQUIRE(after.ranks.size() == 2);
  CHECK(after.ranks[1].state == "idle");
  CHECK(after.ranks[1].last_seen_ms < 5000);
}

}  // namespace
}  // namespace gradmon

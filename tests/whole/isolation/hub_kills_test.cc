// SPDX-License-Identifier: Apache-2.0
// The hub is killed again and again at random times, while plans are switched.
#include <poll.h>
#include <signal.h>

#include <cstdlib>
#include <iostream>
#include <random>

#include "control/debian_version.h"
#include "control/files/descriptor.h"
#include "control/host/unix_socket.h"
#include "tests/support/real_job.h"
#include "tests/support/scale.h"
#include "tests/support/temporary_directory.h"
#include "tests/whole/availability/collected_steps.h"
#include "tests/whole/availability/stalls.h"
#include "tests/whole/availability/training_ends.h"
#include "tests/whole/availability/training_job.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("a hub that is killed again and again is back soon and training computes the same bits") {
  const char* given = std::getenv("GRADMON_AVAILABILITY_SEED");
  const unsigned seed = given == nullptr ? 1U : static_cast<unsigned>(std::stoul(given));
  std::mt19937 random(seed);
  const int kills = scaled(5, 100);
  const auto pick = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  TemporaryDirectory directory;
  const JobPlaces places(directory.path());
  TrainingJob job(places, {});
  job.start_all();
  REQUIRE(job.wait_until_running());
  const std::int64_t began = monotonic_us();
  milliseconds slowest{0};
  for (int i = 0; i < kills; ++i) {
    ProcessOptions asked = job.gradmonctl_options({i % 2 == 0 ? "on" : "off"});
    ChildProcess change(asked);
    ::poll(nullptr, 0, pick(0, 250));
    pid_t dead = -1;
    REQUIRE(eventually([&] { return (dead = job.hub()) > 0; }));
    kill(dead, SIGKILL);
    const auto killed = std::chrono::steady_clock::now();
    const bool back = eventually(
        [&] {
          // The process alone does not count: the hub must accept connections.
          const Descriptor connection(connect_unix(job.socket()).value_or(-1));
          const pid_t now = job.hub();
          return connection.valid() && now > 0 && now != dead;
        },
        seconds(10));
    const auto took = std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - killed);
    slowest = std::max(slowest, took);
    CAPTURE(seed, i, job.output());
    CHECK(back);
    if (pick(0, 1) == 0) ::poll(nullptr, 0, pick(0, 1'500));  // Else some ranks may not be back.
  }
  const ProcessResult on = job.run_gradmonctl({"on", "--wait", "--timeout", "5"});
  CAPTURE(seed, on.err, job.output());
  CHECK(on.code == 0);
  CHECK(job.run_gradmonctl({"off", "--wait", "--timeout", "5"}).code == 0);
  CHECK(job.store_history());
  const std::int64_t until = monotonic_us();
  const auto codes = job.end(seconds(20));
  CHECK(different_ends(job, codes).empty());
  const auto apart = disagreements(job);
  CAPTURE(apart);
  CHECK(apart.empty());
  const auto felt = stalls(job, began, until);
  std::cout << kills << " kills, seed " << seed << ": the hub is back after " << slowest.count()
            << " ms at most; stalls: " << to_string(felt) << '\n';
  // Each kill may cost one stall.
  StallBounds bounds;
  bounds.all_but_one = bounds.longest;
  bounds.total *= kills;
  CAPTURE(to_string(felt));
  CHECK(bound_violations(felt, bounds).empty());
}

}  // namespace
}  // namespace gradmon

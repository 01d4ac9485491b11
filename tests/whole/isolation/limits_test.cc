// SPDX-License-Identifier: Apache-2.0
// A Monitor that is made where next to nothing is left of descriptors, memory or
// processes: monitoring may fail, training may not.
#include <iostream>
#include <list>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include "tests/whole/availability/training_ends.h"
#include "tests/whole/availability/training_job.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using std::chrono::seconds;

// Root has as many processes as it likes; each job's user has its own alone.
constexpr uid_t kFirstUser = 61'300;
constexpr std::int64_t kSteps = 80;

struct Limited {
  Limited(const std::string& limit, int left)
      : places(directory.path(), user(left)), job(places, options(limit, left)) {
    job.start_all();
  }
  static uid_t user(int left) { return kFirstUser + static_cast<uid_t>(left); }
  static JobOptions options(const std::string& limit, int left) {
    JobOptions made;
    made.world = 1;
    made.user = user(left);
    made.trainer = {
        {0, {"--limit", limit, "--left", std::to_string(left), "--steps", std::to_string(kSteps)}}};
    return made;
  }

  TemporaryDirectory directory;
  JobPlaces places;
  TrainingJob job;
};

void live_with(const std::string& limit) {
  std::list<std::pair<int, Limited>> jobs;
  for (const int left : {0, 1, 2, 4, 8})
    jobs.emplace_back(std::piecewise_construct, std::forward_as_tuple(left),
                      std::forward_as_tuple(limit, left));
  for (auto& [left, limited] : jobs) {
    const auto code = limited.job.life(0).process->wait(seconds(60));
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

TEST_CASE("training goes on where no descriptor is left for its Monitor") { live_with("nofile"); }
TEST_CASE("training goes on where no memory is left for its Monitor") { live_with("as"); }
TEST_CASE("training goes on where no process is left for its Monitor") { live_with("nproc"); }

}  // namespace
}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// A Monitor that is created when almost no descriptors, memory or processes are left:
// monitoring may fail, training may not.
#include <unistd.h>

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

constexpr std::int64_t kSteps = 80;

struct LimitedJob {
  LimitedJob(const std::string& limit, int left)
      : places(directory.path(), user(left)), job(places, options(limit, left)) {
    job.start_all();
  }
  // RLIMIT_NPROC does not bind root, and counts all processes of a user: each job has a user of its own.
  static uid_t user(int left) { return static_cast<uid_t>(30'000 + getpid() % 3'000 * 10 + left); }
  static JobOptions options(const std::string& limit, int left) {
    JobOptions made;
    made.world = 1;
    made.user = user(left);
    made.trainer_arguments = {
        {0, {"--limit", limit, "--headroom", std::to_string(left), "--steps", std::to_string(kSteps)}}};
    return made;
  }

  TemporaryDirectory directory;
  JobPlaces places;
  TrainingJob job;
};

void train_with_limit(const std::string& limit) {
  if (geteuid() != 0) {
    WARN("skipped: needs root, for jobs of other users");
    return;
  }
  if (GRADMON_SANITIZED && limit != "nofile") {
    WARN("skipped: sanitizers take memory and start a process themselves");
    return;
  }
  std::list<std::pair<int, LimitedJob>> jobs;
  for (const int left : {0, 1, 2, 4, 8})
    jobs.emplace_back(std::piecewise_construct, std::forward_as_tuple(left),
                      std::forward_as_tuple(limit, left));
  for (auto& [left, limited] : jobs) {
    const auto code = limited.job.rank_process(0).process->wait(seconds(240));
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

TEST_CASE("training goes on where no descriptor is left for its Monitor") { train_with_limit("nofile"); }
TEST_CASE("training goes on where no memory is left for its Monitor") { train_with_limit("as"); }
TEST_CASE("training goes on where no process is left for its Monitor") { train_with_limit("nproc"); }

}  // namespace
}  // namespace gradmon

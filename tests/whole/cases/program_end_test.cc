// SPDX-License-Identifier: Apache-2.0
// A C++ program that ends over a slow disk: the destructor of its Monitor waits for the rows.
#include "control/debian_version.h"
#include "tests/support/outcome.h"
#include "tests/support/real_job.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using std::chrono::seconds;

// One rank that collects all kinds from its first step; each open of a CSV file takes `open_ms`.
RealJob::Options slow_opens(int open_ms, int steps) {
  RealJob::Options options;
  options.world = 1;
  options.dynamic = false;
  options.config =
      "{\"wg_distribution\": true, \"param_distribution\": true, \"xy_distribution\": true, "
      "\"step_count_per_record\": 1, \"collect_times\": 1000000}";
  options.train = {"--steps", std::to_string(steps)};
  // AddressSanitizer wants to be loaded first, unless it is told not to check.
  options.before =
      "export ASAN_OPTIONS=verify_asan_link_order=0 GRADMON_SLOW_OPEN_MS=" + std::to_string(open_ms) +
      " LD_PRELOAD=" GRADMON_SLOW_WRITES ";";
  return options;
}

TEST_CASE("a program that ends loses no row as long as rows are being written") {
  constexpr int steps = 3;
  RealJob job(slow_opens(300, steps));
  REQUIRE(job.wait() == 0);
  INFO(job.log());
  CHECK(job.log().find("rows are still being written") != std::string::npos);
  CHECK(job.log().find("not written") == std::string::npos);
  for (const char* kind : {"actv", "grad_unreduced", "grad_reduced", "param_origin", "param_updated"}) {
    CAPTURE(kind);
    const auto rows = rows_in_files(job.output_dir, kind);
    REQUIRE(rows.count(0) == 1);
    CHECK(rows.at(0).size() == steps);
  }
}

TEST_CASE("a program that ends gives up on a disk that hangs and counts the lost rows") {
  RealJob job(slow_opens(60'000, 2));
  REQUIRE(eventually([&] { return job.log().find("step 1 loss ") != std::string::npos; }, seconds(60)));
  // It waits 2 s for the writer. One open takes 60 s: the process must end without its writer.
  REQUIRE(job.wait(seconds(15)) == 0);
  INFO(job.log());
  CHECK(job.log().find("the writer did not end in time; not written: ") != std::string::npos);
  CHECK(job.log().find(" of grad_reduced") != std::string::npos);
}

}  // namespace
}  // namespace gradmon

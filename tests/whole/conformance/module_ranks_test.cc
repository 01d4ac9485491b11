// SPDX-License-Identifier: Apache-2.0
#include "control/debian_version.h"
#include "tests/support/real_job.h"
#include "tests/demo/outcome.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

TEST_CASE("ranks outside module_ranks collect nothing and switch off with the others") {
  const std::string keys =
      R"({"wg_distribution": true, "module_ranks": [1], "collect_times": 3, "dynamic_on": )";
  RealJob job({3, keys + "true}", {"--steps", "100000000", "--step-ms", "5"}, "", true});
  Revision last;
  for (int round = 0; round < 2; ++round) {
    REQUIRE(eventually([&] { return job.config_text() == keys + "false}"; }));
    Status now;
    REQUIRE(eventually([&] {
      now = job.status();
      return now.revision > last && now.reason == "finished" && now.ranks.size() == 3;
    }));
    for (const RankStatus& rank : now.ranks) CHECK(rank.revision == now.revision);
    last = now.revision;
    write_text(job.config_path, keys + "true}");
  }
  REQUIRE(eventually([&] { return job.status().revision > last; }));
  job.end();
  auto found = rows_in_files(job.output_dir, "grad_reduced");
  CHECK(found[0].empty());
  CHECK(found[1].size() >= 6);
  CHECK(found[2].empty());
}

}  // namespace
}  // namespace gradmon

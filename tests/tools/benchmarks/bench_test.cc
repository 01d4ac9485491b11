// SPDX-License-Identifier: Apache-2.0
// That everything is measured; how much it is, only tools/bench on a quiet
// machine can say.
#include <sys/wait.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include "tools/benchmarks/measure/range.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

int bench(const std::string& arguments) {
  const int status = std::system((std::string(GRADMON_BENCH) + " " + arguments).c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("a quick run gives every figure that is promised as a finite number") {
  const TemporaryDirectory directory;
  const auto file = directory / "figures.json";
  REQUIRE(bench("--quick --json '" + file.string() + "' >'" + (directory / "out").string() + "'") == 0);
  const auto all = nlohmann::json::parse(read_text(file));
  std::set<std::string> names;
  for (const auto& figure : all.at("figures")) {
    INFO(figure.dump());
    REQUIRE(figure.size() == 6);
    REQUIRE(figure.at("value").is_number());
    REQUIRE(std::isfinite(figure.at("value").get<double>()));
    REQUIRE(!figure.at("unit").get<std::string>().empty());
    REQUIRE(!figure.at("how").get<std::string>().empty());
    REQUIRE(figure.at("goal").is_null() == figure.at("met").is_null());
    REQUIRE(names.insert(figure.at("name")).second);
  }
  const std::set<std::string> promised{"idle_step_ns",
                                       "on_step_extra_ns",
                                       "stats_vs_read",
                                       "stats_vs_read_bfloat16",
                                       "stats_vs_read_float16",
                                       "stats_vs_torch",
                                       "grads_vs_read",
                                       "grads_overhead_2048",
                                       "grads_overhead_512",
                                       "state_vs_read",
                                       "state_overhead_2048",
                                       "state_overhead_512",
                                       "reading_ns",
                                       "activations_vs_read",
                                       "activations_overhead_2048",
                                       "activations_overhead_512",
                                       "communication_vs_read",
                                       "attention_features",
                                       "attention_features_causal",
                                       "idle_overhead",
                                       "commit_ms_ctl",
                                       "commit_ms_inplace",
                                       "commit_ms_rename",
                                       "edits_held_from_next_step",
                                       "hub_idle_percent",
                                       "hub_resident_mb",
                                       "rows_per_s_queue",
                                       "rows_per_s_csv",
                                       "hubs_simulated"};
  REQUIRE(names == promised);
}

TEST_CASE("a figure that does not exist is wrong usage") {
  REQUIRE(bench("no_such_figure 2>/dev/null") == 2);
}

TEST_CASE("the interval of a median leaves the outliers of many values out and takes all of few") {
  std::vector<double> values;
  for (int i = 1; i <= 100; ++i) values.push_back(i);
  REQUIRE(median_interval(values).low == 40);
  REQUIRE(median_interval(values).high == 61);
  REQUIRE(median_interval({3, 1, 2}).low == 1);
  REQUIRE(median_interval({3, 1, 2}).high == 3);
  REQUIRE(range_of({3, 1, 2}).median == 2);
  REQUIRE(range_of({4, 1, 2, 3}).median == 2.5);
}

}  // namespace
}  // namespace gradmon

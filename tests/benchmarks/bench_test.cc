// SPDX-License-Identifier: Apache-2.0
// Checks that every figure is measured. Its value is meaningful only in tools/bench on a quiet machine.
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/benchmarks/measure.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

constexpr const char* kAll =
    R"(idle_step_ns on_step_extra_ns stats_vs_read stats_vs_read_bfloat16 stats_vs_read_float16
      stats_vs_read_float64 stats_vs_torch histograms_ns histograms_vs_torch grads_vs_read
      grads_overhead_2048 grads_overhead_512 state_vs_read state_overhead_2048 state_overhead_512
      reading_ns activations_vs_read activations_reused_vs_read activations_overhead_2048
      activations_reused_overhead_2048 activations_overhead_512 activations_sample_16 communication_vs_read
      attention_features attention_features_causal idle_overhead commit_ms_ctl commit_ms_inplace commit_ms_rename
      edits_held_from_next_step hub_idle_percent hub_resident_mb rows_per_s_queue rows_per_s_csv
      rows_per_s_csv_zstd csv_zstd_saves csv_zstd_saves_norm rows_per_s_sqlite values_per_s_tb hubs_simulated
      alert_ns_per_value)";
int bench(const std::string& arguments) {
  const int status = std::system((std::string(GRADMON_BENCH) + " " + arguments).c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::set<std::string> words_of(const std::string& text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

TEST_CASE("a quick run gives every promised figure as a finite number") {
  const char* const scale = std::getenv("GRADMON_TEST_SCALE");
  const bool is_full = scale != nullptr && std::string(scale) == "full";
  const std::string wanted = is_full ? "" : "idle_step_ns stats_vs_read rows_per_s_csv";  // with their groups
  const TemporaryDirectory directory;
  const auto file = directory / "figures.json";
  REQUIRE(bench("--quick --json '" + file.string() + "' " + wanted + " >'" + (directory / "out").string() +
                "'") == 0);
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
  const std::set<std::string> promised = words_of(kAll), asked = words_of(wanted);
  REQUIRE(std::includes(promised.begin(), promised.end(), names.begin(), names.end()));
  REQUIRE(std::includes(names.begin(), names.end(), asked.begin(), asked.end()));
  if (is_full) REQUIRE(names == promised);
}

TEST_CASE("the interval of a median drops the tails of many values and spans all of few") {
  std::vector<double> values;
  for (int i = 1; i <= 100; ++i) values.push_back(i);
  REQUIRE(median_interval(values) == std::pair(40.0, 61.0));
  REQUIRE(median_interval({3, 1, 2}) == std::pair(1.0, 3.0));
  REQUIRE(median_of({3, 1, 2}) == 2);
  REQUIRE(median_of({4, 1, 2, 3}) == 2.5);
}

TEST_CASE("an unknown figure is a usage error") { REQUIRE(bench("no_such_figure 2>/dev/null") == 2); }

}  // namespace
}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/metrics_schema.h"

#include <set>

#include "tests/support/catch.h"

using namespace gradmon;

namespace {

std::vector<std::string> names_of(const std::vector<MetricStat>& stats) {
  std::vector<std::string> names;
  for (const MetricStat& stat : stats) names.emplace_back(stat.name);
  return names;
}

}  // namespace

TEST_CASE("metric ids are the places of the kinds, counted from 1") {
  CHECK(metric_id_of(Kind::actv) == 1);
  CHECK(metric_id_of(Kind::grad_reduced) == 4);
  CHECK(metric_id_of(Kind::scalar) == 14);
  CHECK(metric_id_of(Kind::update) == 15);
  CHECK(metric_id_of(Kind::ratio) == 16);
}

TEST_CASE("bits of nan_mask are fixed and different") {
  std::set<int> bits;
  for (const MetricStat& stat : all_metric_stats()) {
    bits.insert(stat.nan_bit);
    if (std::string(stat.name) == "norm") CHECK(stat.nan_bit == 0);
    if (std::string(stat.name) == "mean") CHECK(stat.nan_bit == 5);
    if (std::string(stat.name) == "entropy") CHECK(stat.nan_bit == 6);
    if (std::string(stat.name) == "value") CHECK(stat.nan_bit == 13);
    if (std::string(stat.name) == "absmax") CHECK(stat.nan_bit == 14);
    if (std::string(stat.name) == "sampled") CHECK(stat.nan_bit == 15);
    if (std::string(stat.name) == "norm_se") CHECK(stat.nan_bit == 17);
  }
  CHECK(bits.size() == all_metric_stats().size());
  CHECK(*bits.rbegin() < 63);
}

TEST_CASE("the columns of a metric are msprobe's six in its order, then the others") {
  Layout layout;
  layout.ops = {Op::absmax, Op::mean, Op::nans, Op::zeros, Op::max, Op::min, Op::norm};
  const std::vector<std::string> all = {"norm", "min", "max", "zeros", "nans", "mean", "absmax"};
  CHECK(names_of(metric_stats_of(Kind::grad_reduced, layout)) == all);
  layout.samples = true;
  CHECK(names_of(metric_stats_of(Kind::exp_avg, layout)).back() == "norm_se");
  layout.samples = false;
  layout.ops = {Op::nans, Op::norm};
  CHECK(names_of(metric_stats_of(Kind::actv, layout)) == std::vector<std::string>{"norm", "nans"});
  CHECK(names_of(metric_stats_of(Kind::other, layout)) ==
        std::vector<std::string>{"norm", "nans", "mg_direction"});
  CHECK(names_of(metric_stats_of(Kind::scalar, layout)) == std::vector<std::string>{"samples", "value"});
}

TEST_CASE("a partition is named after its metric and its 500 steps") {
  CHECK(partition_of(4, 0).text() == "metric_4_step_0_499");
  CHECK(partition_of(4, 499).text() == "metric_4_step_0_499");
  CHECK(partition_of(14, 123'456).text() == "metric_14_step_123000_123499");
  CHECK(partition_of(4, 25, 10).text() == "metric_4_step_20_29");
  CHECK(partition_of(4, 9'223'372'036'854'775'807).text() ==
        "metric_4_step_9223372036854775500_9223372036854775807");
}

TEST_CASE("the layer of a target ends with the first part that is a number") {
  CHECK(layer_of("layers.3.fc.weight") == "layers.3");
  CHECK(layer_of("encoder.layers.12.mlp.0.bias") == "encoder.layers.12");
  CHECK(layer_of("layers.3") == "layers.3");
  CHECK(layer_of("fc1.weight") == "");
  CHECK(layer_of("3.weight") == "");
  CHECK(layer_of("h3.weight") == "");
  CHECK(layer_of("") == "");
}

TEST_CASE("the view of a metric with many partitions is a union of unions") {
  StoredMetric metric{4, "grad_reduced", {"norm"}, {}};
  for (std::int64_t i = 0; i < 400; ++i) metric.partitions.push_back(partition_of(4, i * 500).text());
  CHECK(metric_views(metric).size() == 1);
  metric.partitions.push_back(partition_of(4, 200'000).text());
  const auto views = metric_views(metric);
  REQUIRE(views.size() == 3);
  CHECK(views[1].select ==
        "SELECT rank, step, target_id, nan_mask, \"norm\" FROM metric_4_step_200000_200499");
  CHECK(views[2].name == "v_metric_4");
}

// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/sqlite/metrics_schema.h"

#include <algorithm>
#include <array>
#include <utility>

#include "writers/sinks/columns.h"
#include "writers/sqlite/sqlite_database.h"

namespace gradmon {
namespace {

constexpr std::array kMsprobeOps = {Op::norm, Op::min, Op::max, Op::zeros, Op::nans, Op::mean};
// Their bits of nan_mask follow those of msprobe's ops.
constexpr std::array kOtherStats = {"entropy", "softmax_max",  "sr",      "kernel_norm",
                                    "cosine",  "mg_direction", "samples", "value"};
constexpr int kFirstOtherBit = static_cast<int>(kMsprobeOps.size());
constexpr int kFirstAddedBit = kFirstOtherBit + static_cast<int>(kOtherStats.size());
constexpr std::size_t kTermsOfView = 400;  // SQLite refuses a union of more than 500

std::vector<MetricStat> make_all_stats() {
  std::vector<MetricStat> all;
  int bit = 0;
  for (const Op op : kMsprobeOps) all.push_back({name_of(op), bit++, 0});
  bit = kFirstAddedBit;
  for (std::size_t op = kMsprobeOps.size(); op < kOps; ++op)
    all.push_back({name_of(static_cast<Op>(op)), bit++, 0});
  bit = kFirstOtherBit;
  for (const char* const name : kOtherStats) all.push_back({name, bit++, 0});
  return all;
}

// CASE over the statistics of a row of `metric_stats`.
std::string case_of(const std::vector<std::string>& stats, std::string (*then)(const std::string& stat)) {
  std::string text = "CASE s.stat_name";
  for (const std::string& stat : stats) text += " WHEN " + sql_text(stat) + " THEN " + then(stat);
  return text + " END";
}

std::string union_of(const std::vector<std::string>& tables, const std::string& columns) {
  std::string text;
  for (const std::string& table : tables)
    text += (text.empty() ? "" : " UNION ALL ") + ("SELECT " + columns + " FROM " + table);
  return text;
}

}  // namespace

const std::vector<MetricStat>& all_metric_stats() {
  static const std::vector<MetricStat> all = make_all_stats();
  return all;
}

int nan_bit_of(const std::string& stat) {
  for (const MetricStat& known : all_metric_stats()) {
    if (stat == known.name) return known.nan_bit;
  }
  return 63;  // a statistic unknown to this version
}

std::vector<MetricStat> metric_stats_of(Kind kind, const Layout& layout) {
  using Source = RowColumn::Source;
  const std::vector<RowColumn> columns = columns_of(kind, layout);
  std::vector<MetricStat> stats;
  for (MetricStat stat : all_metric_stats()) {
    const auto column = std::find_if(columns.begin(), columns.end(), [&](const RowColumn& c) {
      return (c.source == Source::number || c.source == Source::count) &&
             std::string_view(c.title) == stat.name;
    });
    if (column == columns.end()) continue;
    stat.value = column->value;
    stats.push_back(stat);
  }
  return stats;
}

std::string PartitionName::text() const {
  return "metric_" + std::to_string(metric_id) + "_step_" + std::to_string(first_step) + "_" +
         std::to_string(last_step());
}

PartitionName partition_of(std::int64_t metric_id, std::int64_t step, std::int64_t steps) {
  return {metric_id, step - step % steps, steps};
}

std::string create_metrics_schema(std::int64_t partition_steps) {
  const auto stat = [](const char* name, std::int64_t value) {
    return "INSERT INTO global_stats VALUES ('" + std::string(name) + "', " + std::to_string(value) + ");\n";
  };
  std::string text = R"(
CREATE TABLE monitoring_targets (
  target_id INTEGER PRIMARY KEY,
  target_name TEXT NOT NULL,
  vpp_stage INTEGER NOT NULL,
  micro_step INTEGER NOT NULL DEFAULT 0,
  UNIQUE (target_name, vpp_stage, micro_step));
CREATE TABLE monitoring_metrics (metric_id INTEGER PRIMARY KEY, metric_name TEXT NOT NULL UNIQUE);
CREATE TABLE metric_stats (
  metric_id INTEGER NOT NULL, stat_name TEXT NOT NULL, PRIMARY KEY (metric_id, stat_name)) WITHOUT ROWID;
CREATE TABLE global_stats (stat_name TEXT PRIMARY KEY, stat_value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE target_tensors (
  metric_id INTEGER NOT NULL,
  target_id INTEGER NOT NULL,
  rank INTEGER NOT NULL,
  step INTEGER NOT NULL,
  shape TEXT NOT NULL,
  dtype TEXT NOT NULL,
  PRIMARY KEY (metric_id, target_id, rank, step)) WITHOUT ROWID;
CREATE TABLE target_scope (
  metric_id INTEGER NOT NULL,
  target_id INTEGER NOT NULL,
  rank INTEGER NOT NULL,
  scope TEXT NOT NULL,
  detail TEXT NOT NULL,
  PRIMARY KEY (metric_id, target_id, rank)) WITHOUT ROWID;
CREATE TABLE target_layers (target_name TEXT PRIMARY KEY, layer TEXT NOT NULL) WITHOUT ROWID;
)";
  text += stat("schema_version", kMetricsSchemaVersion) + stat("step_partition_size", partition_steps);
  std::vector<MetricsView> views = derived_views("v_metrics JOIN target_layers ON target_name = target");
  views.insert(views.begin(), all_metrics_view({}));
  for (const MetricsView& view : views) text += "CREATE VIEW " + view.name + " AS " + view.select + ";\n";
  return text + "PRAGMA application_id = " + std::to_string(kMetricsApplicationId) +
         ";\nPRAGMA user_version = " + std::to_string(kMetricsSchemaVersion) + ";\n";
}

std::string create_partition(const std::string& name, const std::vector<std::string>& stats) {
  std::string text = "CREATE TABLE IF NOT EXISTS " + name +
                     " (rank INTEGER NOT NULL, step INTEGER NOT NULL, target_id INTEGER NOT NULL, ";
  for (const std::string& stat : stats) text += sql_name(stat) + " REAL, ";
  return text + "nan_mask INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (rank, step, target_id)) WITHOUT ROWID";
}

std::string select_values(const StoredMetric& metric, const std::string& table) {
  const std::string value =
      case_of(metric.stats, [](const std::string& stat) { return "m." + sql_name(stat); });
  const std::string bit =
      case_of(metric.stats, [](const std::string& stat) { return std::to_string(nan_bit_of(stat)); });
  return "SELECT m.rank AS rank, m.step AS step, " + sql_text(metric.name) +
         " AS metric, t.target_name AS target, t.vpp_stage AS vpp_stage, t.micro_step AS micro_step, "
         "s.stat_name AS op, " +
         value + " AS value FROM " + table +
         " m CROSS JOIN metric_stats s CROSS JOIN monitoring_targets t WHERE s.metric_id = " +
         std::to_string(metric.id) + " AND t.target_id = m.target_id AND (" + value +
         " IS NOT NULL OR m.nan_mask >> " + bit + " & 1)";
}

std::vector<MetricsView> metric_views(const StoredMetric& metric) {
  std::string columns = "rank, step, target_id, nan_mask";
  for (const std::string& stat : metric.stats) columns += ", " + sql_name(stat);
  const std::string name = "v_metric_" + std::to_string(metric.id);
  std::vector<std::string> parts = metric.partitions;
  std::vector<MetricsView> views;
  if (parts.size() > kTermsOfView) {
    parts.clear();
    for (std::size_t at = 0; at < metric.partitions.size(); at += kTermsOfView) {
      const auto begin = metric.partitions.begin() + static_cast<std::ptrdiff_t>(at);
      const std::size_t count = std::min(kTermsOfView, metric.partitions.size() - at);
      parts.push_back(name + "_" + std::to_string(parts.size()));
      views.push_back({parts.back(), union_of({begin, begin + static_cast<std::ptrdiff_t>(count)}, columns)});
    }
  }
  views.push_back({name, union_of(parts, columns)});
  return views;
}

MetricsView all_metrics_view(const std::vector<StoredMetric>& metrics) {
  std::string text;
  for (const StoredMetric& metric : metrics)
    text +=
        (text.empty() ? "" : " UNION ALL ") + select_values(metric, "v_metric_" + std::to_string(metric.id));
  if (text.empty())
    text =
        "SELECT 0 AS rank, 0 AS step, '' AS metric, '' AS target, 0 AS vpp_stage, 0 AS micro_step, '' AS op, "
        "0.0 AS value WHERE 0";
  return {"v_metrics", text};
}

std::vector<MetricsView> derived_views(const std::string& layered) {
  std::string folds;
  const auto fold = [&folds](const char* op, const char* how) {
    folds += " WHEN " + sql_text(op) + " THEN " + how;
  };
  for (std::size_t i = 0; i < kOps; ++i) {
    const Statistic& statistic = kStatistics[i];
    if (statistic.fold == Fold::least) fold(statistic.name, "min(value)");
    if (statistic.fold == Fold::greatest) fold(statistic.name, "max(value)");
    if (statistic.fold == Fold::sum) fold(statistic.name, "sum(value)");
    if (statistic.fold == Fold::root_of_squares) fold(statistic.name, "sqrt(sum(value * value))");
  }
  return {
      {"v_nonfinite",
       "SELECT rank, step, metric, target, vpp_stage, micro_step, op, CASE WHEN value IS NULL THEN 'nan' "
       "WHEN value = 9e999 THEN 'inf' WHEN value = -9e999 THEN '-inf' ELSE value END AS value FROM "
       "v_metrics WHERE value IS NULL OR value = 9e999 OR value = -9e999 OR (op = 'nans' AND value > 0)"},
      {"v_layer_step",
       "SELECT rank, step, metric, vpp_stage, micro_step, layer, op, count(*) AS targets, count(*) - "
       "count(value) AS nan_targets, min(value) AS least, max(value) AS greatest, CASE WHEN count(value) < "
       "count(*) THEN NULL ELSE CASE op" +
           folds + " END END AS value FROM " + layered +
           " GROUP BY rank, step, metric, vpp_stage, micro_step, layer, op"}};
}

std::string_view layer_of(std::string_view target) {
  for (std::size_t begin = 0; begin < target.size();) {
    const std::size_t end = std::min(target.find('.', begin), target.size());
    const std::string_view part = target.substr(begin, end - begin);
    if (begin > 0 && !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos)
      return target.substr(0, end);
    begin = end + 1;
  }
  return {};
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/metrics_schema.h"

#include <array>
#include <cstdio>
#include <utility>

#include "writers/sinks/columns.h"

namespace gradmon {
namespace {

constexpr std::array kMsprobeOps = {Op::norm, Op::min, Op::max, Op::zeros, Op::nans, Op::mean};
// Their bits of nan_mask follow those of msprobe's ops.
constexpr std::array kOtherStats = {"entropy", "softmax_max",  "sr",      "kernel_norm",
                                    "cosine",  "mg_direction", "samples", "value"};
// Their bits follow that of absmax; those of later ops follow theirs.
constexpr std::array kSampleStats = {"sampled", "mean_se", "norm_se"};
constexpr int kFirstOtherBit = static_cast<int>(kMsprobeOps.size());
constexpr int kAbsmaxBit = kFirstOtherBit + static_cast<int>(kOtherStats.size());
constexpr int kFirstSampleBit = kAbsmaxBit + 1;
constexpr int kFirstAddedBit = kFirstSampleBit + static_cast<int>(kSampleStats.size());
constexpr std::size_t kTermsOfView = 400;  // SQLite refuses a union of more than 500

std::vector<MetricStat> make_all_stats() {
  std::vector<MetricStat> all;
  int bit = 0;
  for (const Op op : kMsprobeOps) all.push_back({name_of(op), bit++, 0});
  all.push_back({name_of(Op::absmax), kAbsmaxBit, 0});
  bit = kFirstAddedBit;
  for (auto op = static_cast<std::size_t>(Op::absmax) + 1; op < kOps; ++op)
    all.push_back({name_of(static_cast<Op>(op)), bit++, 0});
  bit = kFirstOtherBit;
  for (const char* const name : kOtherStats) all.push_back({name, bit++, 0});
  bit = kFirstSampleBit;
  for (const char* const name : kSampleStats) all.push_back({name, bit++, 0});
  return all;
}

// CASE over the statistics of a row of `metric_stats`.
std::string sql_case(const std::vector<std::string>& stats, std::string (*then)(const std::string& stat)) {
  std::string text = "CASE s.stat_name";
  for (const std::string& stat : stats) text += " WHEN " + sql_text(stat) + " THEN " + then(stat);
  return text + " END";
}

std::string sql_union(const std::vector<std::string>& tables, const std::string& columns) {
  std::string text;
  for (const std::string& table : tables)
    text += (text.empty() ? "" : " UNION ALL ") + ("SELECT " + columns + " FROM " + table);
  return text;
}

bool contains(const std::vector<std::string>& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

std::size_t column_order(const std::string& stat) {
  const auto& all = all_metric_stats();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const MetricStat& s) { return stat == s.name; });
  return static_cast<std::size_t>(found - all.begin());
}

void sort_stats(std::vector<std::string>& stats) {
  std::sort(stats.begin(), stats.end(), [](const std::string& a, const std::string& b) {
    return std::make_pair(column_order(a), a) < std::make_pair(column_order(b), b);
  });
}

// Calls `row` for each row of a query.
template <class OnRow>
SqliteResult<void> each_row(SqliteDatabase& database, const std::string& query, const OnRow& on_row) {
  auto statement = database.prepare(query);
  if (!statement) return tl::unexpected(statement.error());
  for (;;) {
    const auto row = statement->step();
    if (!row) return tl::unexpected(row.error());
    if (!*row) return {};
    on_row(*statement);
  }
}

std::string text_at(const SqliteStatement& row, int column) { return std::string(row.value(column).text); }

int nan_bit_of(const std::string& stat) {
  for (const MetricStat& known : all_metric_stats()) {
    if (stat == known.name) return known.nan_bit;
  }
  return 63;  // a statistic unknown to this version
}

std::string create_partition(const std::string& name, const std::vector<std::string>& stats) {
  std::string text = "CREATE TABLE IF NOT EXISTS " + name +
                     " (rank INTEGER NOT NULL, step INTEGER NOT NULL, target_id INTEGER NOT NULL, ";
  for (const std::string& stat : stats) text += sql_name(stat) + " REAL, ";
  return text + "nan_mask INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (rank, step, target_id)) WITHOUT ROWID";
}

// A query for the rows of v_metrics that `table`, a partition or a union of partitions, gives.
std::string select_values(const StoredMetric& metric, const std::string& table) {
  const std::string value =
      sql_case(metric.stats, [](const std::string& stat) { return "m." + sql_name(stat); });
  const std::string bit =
      sql_case(metric.stats, [](const std::string& stat) { return std::to_string(nan_bit_of(stat)); });
  return "SELECT m.rank AS rank, m.step AS step, " + sql_text(metric.name) +
         " AS metric, t.target_name AS target, t.vpp_stage AS vpp_stage, t.micro_step AS micro_step, "
         "s.stat_name AS op, " +
         value + " AS value FROM " + table +
         " m CROSS JOIN metric_stats s CROSS JOIN monitoring_targets t WHERE s.metric_id = " +
         std::to_string(metric.id) + " AND t.target_id = m.target_id AND (" + value +
         " IS NOT NULL OR m.nan_mask >> " + bit + " & 1)";
}

// v_metrics. Every metric must have partitions; `metrics` may be empty.
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

// v_nonfinite and v_layer_step.
std::vector<MetricsView> derived_views() {
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
           folds +
           " END END AS value FROM v_metrics JOIN target_layers ON target_name = target GROUP BY rank, step, "
           "metric, vpp_stage, micro_step, layer, op"}};
}

}  // namespace

const std::vector<MetricStat>& all_metric_stats() {
  static const std::vector<MetricStat> all = make_all_stats();
  return all;
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

std::string create_metrics_schema() {
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
  text += stat("schema_version", kMetricsSchemaVersion) + stat("step_partition_size", kPartitionSteps);
  std::vector<MetricsView> views = derived_views();
  views.insert(views.begin(), all_metrics_view({}));
  for (const MetricsView& view : views) text += "CREATE VIEW " + view.name + " AS " + view.select + ";\n";
  return text + "PRAGMA application_id = " + std::to_string(kMetricsApplicationId) +
         ";\nPRAGMA user_version = " + std::to_string(kMetricsSchemaVersion) + ";\n";
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
      views.push_back(
          {parts.back(), sql_union({begin, begin + static_cast<std::ptrdiff_t>(count)}, columns)});
    }
  }
  views.push_back({name, sql_union(parts, columns)});
  return views;
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

SqliteResult<StoredMetrics> read_metrics(SqliteDatabase& database) {
  StoredMetrics metrics;
  auto done =
      each_row(database, "SELECT metric_id, metric_name FROM monitoring_metrics", [&](const auto& row) {
        StoredMetric& metric = metrics[row.integer(0)];
        metric.id = row.integer(0);
        metric.name = text_at(row, 1);
      });
  if (!done) return tl::unexpected(done.error());
  done = each_row(database, "SELECT metric_id, stat_name FROM metric_stats", [&](const auto& row) {
    const auto metric = metrics.find(row.integer(0));
    if (metric != metrics.end()) metric->second.stats.push_back(text_at(row, 1));
  });
  if (!done) return tl::unexpected(done.error());
  std::map<std::int64_t, std::map<std::int64_t, std::string>> partitions;  // by id, first step
  done = each_row(database,
                  "SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'metric_[0-9]*_step_*'",
                  [&](const auto& row) {
                    const std::string name = text_at(row, 0);
                    long long id = 0;
                    long long first = 0;
                    if (std::sscanf(name.c_str(), "metric_%lld_step_%lld_", &id, &first) == 2)
                      partitions[id][first] = name;
                  });
  if (!done) return tl::unexpected(done.error());
  for (auto& [id, metric] : metrics) {
    sort_stats(metric.stats);
    for (auto& [first, name] : partitions[id]) metric.partitions.push_back(std::move(name));
  }
  return metrics;
}

SqliteResult<void> MetricCatalog::load(SqliteDatabase& database) {
  views_.clear();
  auto metrics = read_metrics(database);
  if (!metrics) return tl::unexpected(metrics.error());
  metrics_ = std::move(*metrics);
  const auto steps =
      database.integer("SELECT stat_value FROM global_stats WHERE stat_name = 'step_partition_size'");
  if (!steps) return tl::unexpected(steps.error());
  if (*steps < 1)
    return tl::unexpected(
        SqliteError{SqliteError::Cause::damaged,
                    "step_partition_size is " + std::to_string(*steps) + "; expected at least 1"});
  partition_steps_ = *steps;
  return {};
}

SqliteResult<std::string> MetricCatalog::ensure(SqliteDatabase& database, Kind kind, Step step,
                                                const std::vector<MetricStat>& stats) {
  StoredMetric& metric = metrics_[metric_id_of(kind)];
  if (metric.id == 0) {
    metric.id = metric_id_of(kind);
    metric.name = name_of(kind);
    auto made = database.run("INSERT INTO monitoring_metrics VALUES (" + std::to_string(metric.id) + ", " +
                             sql_text(metric.name) + ")");
    if (!made) return tl::unexpected(made.error());
  }
  const std::size_t known_stats = metric.stats.size();
  if (auto added = add_stats(database, metric, stats); !added) return tl::unexpected(added.error());
  const std::string partition = partition_for(metric.id, step).text();
  const bool known = contains(metric.partitions, partition);
  if (!known) {
    if (auto made = database.run(create_partition(partition, metric.stats)); !made)
      return tl::unexpected(made.error());
    metric.partitions.push_back(partition);
  }
  if (known && metric.stats.size() == known_stats) return partition;
  if (auto updated = update_views(database, metric); !updated) return tl::unexpected(updated.error());
  return partition;
}

std::vector<std::string> MetricCatalog::partitions_with(Step step) const {
  std::vector<std::string> names;
  for (const auto& [id, metric] : metrics_) {
    const std::string name = partition_for(id, step).text();
    if (contains(metric.partitions, name)) names.push_back(name);
  }
  return names;
}

SqliteResult<void> MetricCatalog::add_stats(SqliteDatabase& database, StoredMetric& metric,
                                            const std::vector<MetricStat>& stats) {
  std::string statements;
  const std::vector<std::string> before = metric.stats;
  for (const MetricStat& stat : stats) {
    if (contains(before, stat.name)) continue;
    metric.stats.emplace_back(stat.name);
    statements +=
        "INSERT INTO metric_stats VALUES (" + std::to_string(metric.id) + ", " + sql_text(stat.name) + ");";
    for (const std::string& partition : metric.partitions)
      statements += "ALTER TABLE " + partition + " ADD COLUMN " + sql_name(stat.name) + " REAL;";
  }
  sort_stats(metric.stats);
  return database.run(statements);
}

SqliteResult<void> MetricCatalog::update_views(SqliteDatabase& database, const StoredMetric& metric) {
  for (const MetricsView& view : metric_views(metric)) {
    if (auto updated = update_view(database, view); !updated) return updated;
  }
  std::vector<StoredMetric> all;
  for (const auto& [id, stored] : metrics_) {
    if (!stored.partitions.empty()) all.push_back({stored.id, stored.name, stored.stats, {}});
  }
  return update_view(database, all_metrics_view(all));
}

SqliteResult<void> MetricCatalog::update_view(SqliteDatabase& database, const MetricsView& view) {
  std::string& known = views_[view.name];
  if (known == view.select) return {};
  known = view.select;
  return database.run("DROP VIEW IF EXISTS " + view.name + "; CREATE VIEW " + view.name + " AS " +
                      view.select);
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/sqlite/metric_catalog.h"

#include <algorithm>
#include <cstdio>

namespace gradmon {
namespace {

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

SqliteResult<std::map<std::int64_t, StoredMetric>> read_by_id(SqliteDatabase& database) {
  std::map<std::int64_t, StoredMetric> metrics;
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

}  // namespace

SqliteResult<std::vector<StoredMetric>> read_metrics(SqliteDatabase& database) {
  auto by_id = read_by_id(database);
  if (!by_id) return tl::unexpected(by_id.error());
  std::vector<StoredMetric> metrics;
  for (auto& [id, metric] : *by_id) metrics.push_back(std::move(metric));
  return metrics;
}

SqliteResult<void> MetricCatalog::load(SqliteDatabase& database) {
  views_.clear();
  auto metrics = read_by_id(database);
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

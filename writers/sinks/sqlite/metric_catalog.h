// SPDX-License-Identifier: Apache-2.0
// The metrics, statistics and partitions of a database, and the views over them. Every partition of a metric
// has the columns that metric_stats names. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "writers/sinks/sqlite/metrics_schema.h"
#include "writers/sqlite/sqlite_database.h"

namespace gradmon {

// The metrics of a database, read from its tables; metrics ascend by id. Skips partitions of unknown metrics.
SqliteResult<std::vector<StoredMetric>> read_metrics(SqliteDatabase& database);

class MetricCatalog {
 public:
  // Reads the database. Call it also after a rollback: it forgets metrics made since.
  [[nodiscard]] SqliteResult<void> load(SqliteDatabase& database);

  // Adds missing parts, within the caller's transaction: the metric, statistics as columns of all its
  // partitions, the partition of that step, views. Returns the name of the partition.
  [[nodiscard]] SqliteResult<std::string> ensure(SqliteDatabase& database, Kind kind, Step step,
                                                 const std::vector<MetricStat>& stats);

  // The partition of a metric and a step, with the number of steps that the database sets.
  PartitionName partition_for(std::int64_t metric_id, Step step) const {
    return partition_of(metric_id, step.value, partition_steps_);
  }
  // The names of all partitions for that step.
  std::vector<std::string> partitions_with(Step step) const;

 private:
  SqliteResult<void> add_stats(SqliteDatabase& database, StoredMetric& metric,
                               const std::vector<MetricStat>& stats);
  SqliteResult<void> update_views(SqliteDatabase& database, const StoredMetric& metric);
  SqliteResult<void> update_view(SqliteDatabase& database, const MetricsView& view);

  std::map<std::int64_t, StoredMetric> metrics_;  // by id
  std::int64_t partition_steps_ = kPartitionSteps;
  std::map<std::string, std::string> views_;  // as in the database since load()
};

}  // namespace gradmon

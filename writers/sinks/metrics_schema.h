// SPDX-License-Identifier: Apache-2.0
// The schema of monitor_metrics.db (FORMAT.md, "SQLite"). Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "control/vocabulary.h"
#include "writers/queue/sink.h"
#include "writers/sqlite/sqlite_database.h"

namespace gradmon {

inline constexpr const char* kMetricsFileName = "monitor_metrics.db";
inline constexpr std::int64_t kMetricsApplicationId = 0x67726d6e;  // "grmn"
inline constexpr std::int64_t kMetricsSchemaVersion = 1;           // user_version; a reader refuses others
inline constexpr std::int64_t kPartitionSteps =
    500;  // steps of one partition table, unless global_stats says otherwise

// The metric of a kind: 1, 2, … in the order of Kind. 15 and 16 are reserved for `update` and `ratio`.
constexpr std::int64_t metric_id_of(Kind kind) { return static_cast<std::int64_t>(kind) + 1; }

// A statistic: a column of partition tables.
struct MetricStat {
  const char* name;
  int nan_bit;         // of nan_mask, set if the value is NaN; the same in all versions
  std::uint8_t value;  // index into Record::values
};

// All statistics of all metrics, in the order of columns: msprobe's six, the other ops, the others, the marks
// of samples.
// `value` is 0.
const std::vector<MetricStat>& all_metric_stats();
// The statistics of a kind under a layout, in the order of columns.
std::vector<MetricStat> metric_stats_of(Kind kind, const Layout& layout);

// The partition table of a metric and a step.
struct PartitionName {
  std::int64_t metric_id = 0;
  std::int64_t first_step = 0;
  std::int64_t steps = kPartitionSteps;

  std::int64_t last_step() const {
    return first_step + std::min(steps - 1, std::numeric_limits<std::int64_t>::max() - first_step);
  }
  std::string text() const;  // "metric_4_step_500_999"
};
PartitionName partition_of(std::int64_t metric_id, std::int64_t step, std::int64_t steps = kPartitionSteps);

// Creates everything except partitions and their views. One transaction.
std::string create_metrics_schema();

// A metric as a database stores it.
struct StoredMetric {
  std::int64_t id = 0;
  std::string name = {};
  std::vector<std::string> stats = {};       // in the order of columns
  std::vector<std::string> partitions = {};  // names, ascending by step
};

struct MetricsView {
  std::string name;
  std::string select;
};
// `v_metric_{id}` over the partitions of the metric; for many partitions, helper views `v_metric_{id}_{n}`
// too, which come first.
std::vector<MetricsView> metric_views(const StoredMetric& metric);

// The layer of a target: its name up to the first part that is a number ("layers.3" of "layers.3.fc.weight");
// empty without such a part.
std::string_view layer_of(std::string_view target);

using StoredMetrics = std::map<std::int64_t, StoredMetric>;  // by id
// The metrics of a database, read from its tables. Skips partitions of unknown metrics.
SqliteResult<StoredMetrics> read_metrics(SqliteDatabase& database);

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

  StoredMetrics metrics_;
  std::int64_t partition_steps_ = kPartitionSteps;
  std::map<std::string, std::string> views_;  // as in the database since load()
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tools/convert/job_tables.h"
#include "writers/sinks/metrics_schema.h"

namespace gradmon {
namespace {

constexpr const char* kTable = R"(
CREATE TABLE job_gaps (
  metric_id INTEGER NOT NULL, rank INTEGER NOT NULL, missing TEXT NOT NULL, first_step INTEGER NOT NULL,
  last_step INTEGER NOT NULL, steps INTEGER NOT NULL, fewest_rows INTEGER NOT NULL, most_rows INTEGER NOT NULL,
  PRIMARY KEY (metric_id, rank, missing, first_step)) WITHOUT ROWID;
)";

using RowsOfSteps = std::map<std::int64_t, std::map<std::int64_t, std::int64_t>>;  // rows by step, rank

// Reads the number of rows of each step and rank in a partition.
SqliteResult<RowsOfSteps> rows_of(SqliteDatabase& database, const std::string& partition) {
  auto query = database.prepare("SELECT rank, step, count(*) FROM " + partition + " GROUP BY rank, step");
  if (!query) return tl::unexpected(query.error());
  RowsOfSteps rows;
  for (;;) {
    const auto found = query->step();
    if (!found) return tl::unexpected(found.error());
    if (!*found) return rows;
    rows[query->integer(1)][query->integer(0)] = query->integer(2);
  }
}

// Consecutive collected steps of the job. The rank lacks either all of these steps or rows in each.
struct Gap {
  const char* missing;  // "step" or "rows"; null: no gap
  std::int64_t first_step = 0;
  std::int64_t last_step = 0;
  std::int64_t steps = 0;
  std::int64_t fewest_rows = 0;
};

// Finds the gaps of one metric. Steps are added in ascending order.
class GapFinder {
 public:
  // `most`: by rank, the rows of its fullest step.
  GapFinder(std::int64_t metric_id, std::map<std::int64_t, std::int64_t> most, SqliteStatement& insert)
      : metric_id_(metric_id), most_(std::move(most)), insert_(insert) {}

  SqliteResult<void> add(std::int64_t step, const std::map<std::int64_t, std::int64_t>& rows_by_rank) {
    for (const auto& [rank, most] : most_) {
      const auto found = rows_by_rank.find(rank);
      const std::int64_t rows = found == rows_by_rank.end() ? 0 : found->second;
      const char* const missing = rows == 0 ? "step" : rows < most ? "rows" : nullptr;
      Gap& gap = gaps_[rank];
      if (missing != gap.missing) {
        if (auto closed = close(rank, gap); !closed) return closed;
        gap = {missing, step, step, 0, rows};
      }
      gap.last_step = step;
      ++gap.steps;
      gap.fewest_rows = std::min(gap.fewest_rows, rows);
    }
    return {};
  }
  SqliteResult<void> finish() {
    for (const auto& [rank, gap] : gaps_) {
      if (auto closed = close(rank, gap); !closed) return closed;
    }
    return {};
  }

 private:
  SqliteResult<void> close(std::int64_t rank, const Gap& gap) {
    if (gap.missing == nullptr) return {};
    int parameter = 0;
    for (const SqliteValue& value :
         {SqliteValue::of(metric_id_), SqliteValue::of(rank), SqliteValue::of(std::string_view(gap.missing)),
          SqliteValue::of(gap.first_step), SqliteValue::of(gap.last_step), SqliteValue::of(gap.steps),
          SqliteValue::of(gap.fewest_rows), SqliteValue::of(most_.at(rank))})
      insert_.bind(parameter++, value);
    return insert_.run();
  }

  const std::int64_t metric_id_;
  const std::map<std::int64_t, std::int64_t> most_;
  SqliteStatement& insert_;
  std::map<std::int64_t, Gap> gaps_;  // the open one of each rank
};

SqliteResult<void> find_gaps(SqliteDatabase& database, const StoredMetric& metric, SqliteStatement& insert) {
  std::map<std::int64_t, std::int64_t> most;
  for (const std::string& partition : metric.partitions) {
    const auto rows = rows_of(database, partition);
    if (!rows) return tl::unexpected(rows.error());
    for (const auto& [step, by_rank] : *rows) {
      for (const auto& [rank, count] : by_rank) most[rank] = std::max(most[rank], count);
    }
  }
  GapFinder finder(metric.id, std::move(most), insert);
  for (const std::string& partition : metric.partitions) {
    const auto rows = rows_of(database, partition);
    if (!rows) return tl::unexpected(rows.error());
    for (const auto& [step, by_rank] : *rows) {
      if (auto added = finder.add(step, by_rank); !added) return added;
    }
  }
  return finder.finish();
}

}  // namespace

SqliteResult<void> write_job_gaps(SqliteDatabase& database) {
  if (auto made = database.run(kTable); !made) return made;
  const auto metrics = read_metrics(database);
  if (!metrics) return tl::unexpected(metrics.error());
  auto insert = database.prepare("INSERT INTO job_gaps VALUES (?, ?, ?, ?, ?, ?, ?, ?)");
  if (!insert) return tl::unexpected(insert.error());
  for (const StoredMetric& metric : *metrics) {
    if (auto found = find_gaps(database, metric, *insert); !found) return found;
  }
  return {};
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// Writes records into the SQLite database monitor_metrics.db of the run directory (FORMAT.md). Each step is
// one transaction: all its rows are kept, or none. Rows that are kept survive the end of the process.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "writers/queue/name_table.h"
#include "writers/queue/sink.h"
#include "writers/sinks/sqlite/metric_catalog.h"
#include "writers/sinks/sqlite/metrics_file.h"
#include "writers/sinks/sqlite/target_table.h"

namespace gradmon {

class SqliteSink : public Sink {
 public:
  // `names` resolves the ids in the records; `rank` is the rank of all rows. Opens nothing yet.
  SqliteSink(MetricsFile::Options file, std::shared_ptr<const NameTable> names, Rank rank);
  ~SqliteSink() override;

  const char* name() const override { return "sqlite"; }
  void report_parts(OnPart on_part) override { on_part_ = std::move(on_part); }
  [[nodiscard]] tl::expected<void, SinkError> begin_revision(const Layout& layout) override;
  // A row whose target already has a row of that kind in that step is lost; the first one stays.
  [[nodiscard]] tl::expected<void, SinkError> write_step(Step step,
                                                         const std::vector<Record>& records) override;
  [[nodiscard]] tl::expected<void, SinkError> flush() override { return {}; }

 private:
  static constexpr std::size_t kRowsOfInsert = 32;  // several rows a statement: twice as fast

  // The partition of one kind for the current range of steps.
  struct Output {
    std::vector<MetricStat> stats;
    bool has_micro_step = false;
    std::int64_t first_step = -1;  // of the partition that the statements insert into; -1: none
    SqliteStatement insert_one;
    SqliteStatement insert_many;  // kRowsOfInsert
  };
  using Records = std::pair<const Record*, const Record*>;

  SqliteResult<std::uint64_t> write_transaction(Step step, const std::vector<Record>& records);
  SqliteResult<void> prepare_database();
  SqliteResult<std::uint64_t> write_kind(Kind kind, Step step, Records records);
  SqliteResult<void> open_partition(Kind kind, Step step);
  SqliteResult<void> insert(Output& output, SqliteStatement& statement, const Record* begin,
                            std::size_t rows);
  SqliteResult<void> note_step(Step step);
  void release_statements();

  // Constant after construction.
  const std::shared_ptr<const NameTable> names_;
  const Rank rank_;

  // Writer thread only.
  OnPart on_part_;  // null: parts are not reported
  MetricsFile file_;
  MetricCatalog catalog_;
  TargetTable targets_;
  std::array<Output, kKinds> outputs_;
  SqliteStatement note_step_;
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "control/step.h"
#include "writers/queue/name_table.h"
#include "writers/queue/record_batch.h"
#include "writers/queue/sink.h"
#include "writers/sinks/metrics_schema.h"
#include "writers/sqlite/sqlite_database.h"

namespace gradmon {

// The rows that describe the targets of a database: ids, layers, shapes, data types and scopes. One
// thread at a time.
class TargetTable {
 public:
  // `scopes`: null if unknown.
  TargetTable(std::shared_ptr<const NameTable> names, Rank rank, std::shared_ptr<const ScopeTable> scopes)
      : names_(std::move(names)), scopes_(std::move(scopes)), rank_(rank) {}

  // Forgets everything about the previous database. Call it also before the database is closed.
  void forget();
  [[nodiscard]] SqliteResult<void> prepare(SqliteDatabase& database);

  // `has_rows`: an earlier job has rows in the step of the next records. They stay, and so do their shapes.
  void begin_step(bool has_rows) { step_has_rows_ = has_rows; }
  // The id of the record's target; adds an unknown target. Adds a row of target_tensors if shape or data type
  // differ from those of the target's last record of that kind, and sets the row of target_scope.
  [[nodiscard]] SqliteResult<std::int64_t> id_of(SqliteDatabase& database, const Record& record,
                                                 std::int32_t micro_step);

 private:
  struct Tensor {
    std::uint32_t shape = 0;
    DType dtype = DType::unknown;
    std::uint32_t scope = 0;             // as in the database
    std::uint32_t scopes_looked_at = 0;  // the version of the scopes
  };
  struct Target {
    std::int64_t id = 0;
    std::array<Tensor, kKinds> tensors{};  // of the last record of each kind
  };

  SqliteResult<std::int64_t> find_or_add(SqliteDatabase& database, std::uint32_t target,
                                         std::int32_t micro_step);
  SqliteResult<void> note_tensor(Target& target, const Record& record);
  SqliteResult<void> add_tensor(SqliteStatement& statement, std::int64_t target_id, const Record& record);
  SqliteResult<void> set_scope(std::int64_t target_id, const Record& record, std::uint32_t scope);

  // Constant after construction.
  const std::shared_ptr<const NameTable> names_;
  const std::shared_ptr<const ScopeTable> scopes_;
  const Rank rank_;

  std::unordered_map<std::uint64_t, Target> targets_;  // by target and micro step
  bool step_has_rows_ = false;
  SqliteStatement find_;
  SqliteStatement add_;
  SqliteStatement add_layer_;
  SqliteStatement add_tensor_;
  SqliteStatement add_first_tensor_;
  SqliteStatement set_scope_;
};

// Writes the rows of a step into the tables of a database, within the caller's transaction. One thread at a
// time.
class StepWriter {
 public:
  // `names` resolves the ids in the records; `rank` is the rank of all rows. `scopes`: null if unknown.
  StepWriter(std::shared_ptr<const NameTable> names, Rank rank,
             std::shared_ptr<const ScopeTable> scopes = nullptr)
      : rank_(rank), targets_(std::move(names), rank, std::move(scopes)) {}

  void begin_revision(const Layout& layout);
  // Call it after the database was opened. After a rollback, open the database anew.
  [[nodiscard]] SqliteResult<void> prepare(SqliteDatabase& database);
  // Call it before the database is closed.
  void release();

  // Returns the number of rows written. Skips a row whose target already has a row of that kind in that step.
  // `has_rows`: true if an earlier job has written rows of the step; their shapes stay. `go_on` is called now
  // and then; false: drops the step.
  [[nodiscard]] SqliteResult<std::uint64_t> write(SqliteDatabase& database, Step step,
                                                  const RecordBatch& records, bool has_rows,
                                                  const std::function<bool(Kind)>& go_on);

  [[nodiscard]] SqliteResult<bool> has_rows(SqliteDatabase& database, Step step) const;
  [[nodiscard]] SqliteResult<void> remove_rows(SqliteDatabase& database, Step step) const;

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

  SqliteResult<void> open_partition(SqliteDatabase& database, Kind kind, Step step);
  SqliteResult<void> insert(SqliteDatabase& database, Output& output, RecordBatch::Iterator begin,
                            std::size_t rows);
  SqliteResult<void> note_step(Step step);

  const Rank rank_;  // constant after construction
  MetricCatalog catalog_;
  TargetTable targets_;
  std::array<Output, kKinds> outputs_;
  SqliteStatement note_step_;
};

}  // namespace gradmon

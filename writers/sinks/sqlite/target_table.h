// SPDX-License-Identifier: Apache-2.0
// The rows that describe the targets of a database: ids, layers, shapes, data types and scopes. One
// thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>

#include "control/step.h"
#include "writers/queue/name_table.h"
#include "writers/queue/record.h"
#include "writers/queue/scope_table.h"
#include "writers/sqlite/sqlite_database.h"

namespace gradmon {

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

}  // namespace gradmon

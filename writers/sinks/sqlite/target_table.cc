// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/sqlite/target_table.h"

#include <string>

#include "writers/sinks/sqlite/metrics_schema.h"

namespace gradmon {

void TargetTable::forget() {
  find_ = {};
  add_ = {};
  add_layer_ = {};
  add_tensor_ = {};
  add_first_tensor_ = {};
  set_scope_ = {};
  targets_.clear();
}

SqliteResult<void> TargetTable::prepare(SqliteDatabase& database) {
  const struct {
    SqliteStatement& statement;
    const char* text;
  } all[] = {
      {find_,
       "SELECT target_id FROM monitoring_targets WHERE target_name = ? AND vpp_stage = ? AND micro_step = ?"},
      {add_, "INSERT INTO monitoring_targets (target_name, vpp_stage, micro_step) VALUES (?, ?, ?)"},
      {add_layer_, "INSERT OR IGNORE INTO target_layers VALUES (?, ?)"},
      {add_tensor_, "INSERT OR REPLACE INTO target_tensors VALUES (?1, ?2, ?3, ?4, ?5, ?6)"},
      {add_first_tensor_,
       "INSERT INTO target_tensors SELECT ?1, ?2, ?3, ?4, ?5, ?6 WHERE NOT EXISTS (SELECT 1 FROM "
       "target_tensors WHERE metric_id = ?1 AND target_id = ?2 AND rank = ?3 AND step <= ?4)"},
      {set_scope_,
       // A text that is no JSON for SQLite (no infinity, at most 1,000 levels) does not mean a damaged file.
       "INSERT OR REPLACE INTO target_scope VALUES (?1, ?2, ?3, "
       "coalesce(CASE WHEN json_valid(?4) THEN json_extract(?4, '$.scope') END, ''), ?4)"}};
  for (const auto& [statement, text] : all) {
    auto prepared = database.prepare(text);
    if (!prepared) return tl::unexpected(prepared.error());
    statement = std::move(*prepared);
  }
  return {};
}

SqliteResult<std::int64_t> TargetTable::id_of(SqliteDatabase& database, const Record& record,
                                              std::int32_t micro_step) {
  const std::uint64_t key =
      static_cast<std::uint64_t>(record.target) << 32 | static_cast<std::uint32_t>(micro_step);
  Target& target = targets_[key];
  if (target.id == 0) {
    const auto id = find_or_add(database, record.target, micro_step);
    if (!id) return id;
    target.id = *id;
  }
  if (auto noted = note_tensor(target, record); !noted) return tl::unexpected(noted.error());
  Tensor& tensor = target.tensors[static_cast<std::size_t>(record.kind)];
  if (!scopes_ || tensor.scopes_looked_at == scopes_->version()) return target.id;
  tensor.scopes_looked_at = scopes_->version();
  const std::uint32_t scope = scopes_->of(record.kind, record.target);
  if (tensor.scope == scope) return target.id;
  tensor.scope = scope;
  if (auto set = set_scope(target.id, record, scope); !set) return tl::unexpected(set.error());
  return target.id;
}

SqliteResult<std::int64_t> TargetTable::find_or_add(SqliteDatabase& database, std::uint32_t target,
                                                    std::int32_t micro_step) {
  const std::string& name = names_->name(target);
  for (SqliteStatement* const statement : {&find_, &add_}) {
    statement->bind(0, std::string_view(name));
    statement->bind(1, std::int64_t{names_->vpp_stage(target)});
    statement->bind(2, std::int64_t{micro_step});
  }
  const auto found = find_.step();
  if (!found) return tl::unexpected(found.error());
  if (*found) {
    const std::int64_t id = find_.integer(0);
    find_.reset();
    return id;
  }
  if (auto added = add_.run(); !added) return tl::unexpected(added.error());
  const std::int64_t id = database.last_row_id();
  const std::string_view layer = layer_of(name);
  if (layer.empty()) return id;
  add_layer_.bind(0, std::string_view(name));
  add_layer_.bind(1, layer);
  if (auto added = add_layer_.run(); !added) return tl::unexpected(added.error());
  return id;
}

SqliteResult<void> TargetTable::note_tensor(Target& target, const Record& record) {
  if (step_has_rows_) return add_tensor(add_first_tensor_, target.id, record);
  Tensor& tensor = target.tensors[static_cast<std::size_t>(record.kind)];
  if (tensor.shape == record.shape && tensor.dtype == record.dtype) return {};
  tensor.shape = record.shape;
  tensor.dtype = record.dtype;
  return add_tensor(add_tensor_, target.id, record);
}

SqliteResult<void> TargetTable::add_tensor(SqliteStatement& statement, std::int64_t target_id,
                                           const Record& record) {
  statement.bind(0, metric_id_of(record.kind));
  statement.bind(1, target_id);
  statement.bind(2, std::int64_t{rank_.value});
  statement.bind(3, record.step);
  statement.bind(4, std::string_view(names_->name(record.shape)));
  statement.bind(5, std::string_view(name_of(record.dtype)));
  return statement.run();
}

SqliteResult<void> TargetTable::set_scope(std::int64_t target_id, const Record& record, std::uint32_t scope) {
  set_scope_.bind(0, metric_id_of(record.kind));
  set_scope_.bind(1, target_id);
  set_scope_.bind(2, std::int64_t{rank_.value});
  set_scope_.bind(3, std::string_view(names_->name(scope)));
  return set_scope_.run();
}

}  // namespace gradmon

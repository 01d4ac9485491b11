// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/step_writer.h"

#include <cmath>
#include <string>

#include "writers/sinks/columns.h"

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

namespace {

constexpr std::size_t kRowsBetweenCalls = 4096;

// "INSERT OR IGNORE INTO p (rank, step, target_id, "norm", nan_mask) VALUES (?1, ?2, ?3, ?4, ?5), …". All
// rows share rank and step.
std::string insert_statement(const std::string& partition, const std::vector<MetricStat>& stats,
                             std::size_t rows) {
  std::string text = "INSERT OR IGNORE INTO " + partition + " (rank, step, target_id";
  for (const MetricStat& stat : stats) text += ", " + sql_name(stat.name);
  text += ", nan_mask) VALUES ";
  std::size_t parameter = 2;
  for (std::size_t row = 0; row < rows; ++row) {
    text += row == 0 ? "(?1, ?2" : ", (?1, ?2";
    for (std::size_t i = 0; i < stats.size() + 2; ++i) text += ", ?" + std::to_string(++parameter);
    text += ")";
  }
  return text;
}

}  // namespace

void StepWriter::begin_revision(const Layout& layout) {
  for (std::size_t kind = 0; kind < kKinds; ++kind) {
    outputs_[kind] = Output{};
    outputs_[kind].stats = metric_stats_of(static_cast<Kind>(kind), layout);
    outputs_[kind].has_micro_step = has_micro_step(static_cast<Kind>(kind), layout);
  }
}

SqliteResult<void> StepWriter::prepare(SqliteDatabase& database) {
  if (auto loaded = catalog_.load(database); !loaded) return loaded;
  if (auto prepared = targets_.prepare(database); !prepared) return prepared;
  auto note = database.prepare(
      "INSERT INTO global_stats VALUES ('max_rank', ?1), ('min_step', ?2), ('max_step', ?2) "
      "ON CONFLICT (stat_name) DO UPDATE SET stat_value = CASE stat_name "
      "WHEN 'min_step' THEN min(stat_value, excluded.stat_value) ELSE max(stat_value, excluded.stat_value) "
      "END");
  if (!note) return tl::unexpected(note.error());
  note_step_ = std::move(*note);
  return {};
}

void StepWriter::release() {
  note_step_ = {};
  targets_.forget();
  for (Output& output : outputs_) {
    output.insert_one = {};
    output.insert_many = {};
    output.first_step = -1;
  }
}

SqliteResult<std::uint64_t> StepWriter::write(SqliteDatabase& database, Step step, const RecordBatch& records,
                                              bool has_rows, const std::function<bool(Kind)>& go_on) {
  targets_.begin_step(has_rows);
  std::uint64_t written = 0;
  std::size_t since_call = 0;
  SqliteResult<void> done;
  records.each_kind([&](Kind kind, RecordBatch::Iterator begin, RecordBatch::Iterator end) {
    done = open_partition(database, kind, step);
    Output& output = outputs_[static_cast<std::size_t>(kind)];
    while (done && begin != end) {
      const std::size_t rows = static_cast<std::size_t>(end - begin) >= kRowsOfInsert ? kRowsOfInsert : 1;
      done = insert(database, output, begin, rows);
      begin += rows;
      since_call += rows;
      if (done) written += static_cast<std::uint64_t>(database.changed_rows());
      if (since_call < kRowsBetweenCalls) continue;
      since_call = 0;
      if (!go_on(kind))
        done = tl::unexpected(SqliteError{SqliteError::Cause::environment, "stop() timed out"});
    }
    return done.has_value();
  });
  if (done) done = note_step(step);
  if (!done) return tl::unexpected(done.error());
  return written;
}

SqliteResult<void> StepWriter::open_partition(SqliteDatabase& database, Kind kind, Step step) {
  Output& output = outputs_[static_cast<std::size_t>(kind)];
  const PartitionName partition = catalog_.partition_for(metric_id_of(kind), step);
  if (output.first_step == partition.first_step) return {};
  const auto name = catalog_.ensure(database, kind, step, output.stats);
  if (!name) return tl::unexpected(name.error());
  for (const bool many : {false, true}) {
    auto prepared = database.prepare(insert_statement(*name, output.stats, many ? kRowsOfInsert : 1));
    if (!prepared) return tl::unexpected(prepared.error());
    (many ? output.insert_many : output.insert_one) = std::move(*prepared);
  }
  output.first_step = partition.first_step;
  return {};
}

SqliteResult<void> StepWriter::insert(SqliteDatabase& database, Output& output, RecordBatch::Iterator begin,
                                      std::size_t rows) {
  SqliteStatement& statement = rows == kRowsOfInsert ? output.insert_many : output.insert_one;
  statement.bind(0, std::int64_t{rank_.value});
  statement.bind(1, begin->step);
  int parameter = 2;
  for (const auto end = begin + rows; begin != end; ++begin) {
    const Record record = *begin;
    const auto target = targets_.id_of(database, record, output.has_micro_step ? record.micro_step : 0);
    if (!target) return tl::unexpected(target.error());
    statement.bind(parameter++, *target);
    std::int64_t nan_mask = 0;
    for (const MetricStat& stat : output.stats) {
      const double value = record.values[stat.value];
      const bool measured = (record.mask >> stat.value & 1U) != 0;
      if (measured && std::isnan(value)) nan_mask |= std::int64_t{1} << stat.nan_bit;
      measured ? statement.bind(parameter++, value) : statement.bind_null(parameter++);
    }
    statement.bind(parameter++, nan_mask);
  }
  return statement.run();
}

SqliteResult<void> StepWriter::note_step(Step step) {
  note_step_.bind(0, std::int64_t{rank_.value});
  note_step_.bind(1, step.value);
  return note_step_.run();
}

SqliteResult<bool> StepWriter::has_rows(SqliteDatabase& database, Step step) const {
  for (const std::string& partition : catalog_.partitions_with(step)) {
    const auto rows = database.integer("SELECT count(*) FROM " + partition +
                                       " WHERE rank = " + std::to_string(rank_.value) +
                                       " AND step = " + std::to_string(step.value));
    if (!rows) return tl::unexpected(rows.error());
    if (*rows > 0) return true;
  }
  return false;
}

SqliteResult<void> StepWriter::remove_rows(SqliteDatabase& database, Step step) const {
  for (const std::string& partition : catalog_.partitions_with(step)) {
    auto removed = database.run("DELETE FROM " + partition + " WHERE rank = " + std::to_string(rank_.value) +
                                " AND step = " + std::to_string(step.value));
    if (!removed) return removed;
  }
  return {};
}

}  // namespace gradmon

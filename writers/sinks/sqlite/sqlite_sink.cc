// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/sqlite/sqlite_sink.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "writers/sinks/columns.h"

namespace gradmon {
namespace {

constexpr std::size_t kRowsBetweenReports = 4096;

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

// The rows of each kind.
template <class OnKind>
void each_kind(const std::vector<Record>& records, const OnKind& on_kind) {
  const Record* const end = records.data() + records.size();
  for (const Record* begin = records.data(); begin != end;) {
    const Kind kind = begin->kind;
    const Record* const next = std::find_if(begin, end, [kind](const Record& r) { return r.kind != kind; });
    if (!on_kind(kind, begin, next)) return;
    begin = next;
  }
}

}  // namespace

SqliteSink::SqliteSink(MetricsFile::Options file, std::shared_ptr<const NameTable> names, Rank rank)
    : names_(std::move(names)), rank_(rank), file_(std::move(file)), targets_(names_, rank) {}

SqliteSink::~SqliteSink() { release_statements(); }

tl::expected<void, SinkError> SqliteSink::begin_revision(const Layout& layout) {
  for (std::size_t kind = 0; kind < kKinds; ++kind) {
    outputs_[kind] = Output{};
    outputs_[kind].stats = metric_stats_of(static_cast<Kind>(kind), layout);
    outputs_[kind].has_micro_step = has_micro_step(static_cast<Kind>(kind), layout);
  }
  return {};
}

tl::expected<void, SinkError> SqliteSink::write_step(Step step, const std::vector<Record>& records) {
  const std::uint64_t count = records.size();
  SinkError lost{"", count};
  // A damaged file is moved aside, and the step goes to a new one.
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto written = write_transaction(step, records);
    if (written && *written == count) return {};
    if (written) {
      return tl::unexpected(SinkError{file_.path().string() + ": " + std::to_string(count - *written) +
                                          " rows of step " + std::to_string(step.value) +
                                          " are already there and were not written again",
                                      count - *written});
    }
    lost.text = written.error().text;
    if (written.error().cause != SqliteError::Cause::damaged) break;
  }
  return tl::unexpected(std::move(lost));
}

// The rows written. Whatever fails, an exception too, closes the file, which rolls back.
SqliteResult<std::uint64_t> SqliteSink::write_transaction(Step step, const std::vector<Record>& records) {
  struct Closer {
    SqliteSink& sink;
    SqliteError error{SqliteError::Cause::environment, ""};
    bool committed = false;
    ~Closer() {
      if (committed) return;
      sink.release_statements();
      sink.file_.close_after(error);
    }
  } closer{*this};
  if (file_.is_open() && !file_.is_unchanged()) {
    release_statements();
    file_.leave();
  }
  const auto opened = file_.open();
  if (!opened) return tl::unexpected(SqliteError{SqliteError::Cause::environment, opened.error()});

  std::uint64_t written = 0;
  const auto done = [&]() -> SqliteResult<void> {
    if (*opened == MetricsFile::Opened::anew) {
      if (auto prepared = prepare_database(); !prepared) return prepared;
    }
    SqliteDatabase& database = file_.database();
    if (auto begun = database.run("BEGIN IMMEDIATE"); !begun) return begun;
    SqliteResult<void> all;
    each_kind(records, [&](Kind kind, const Record* begin, const Record* end) {
      const auto rows = write_kind(kind, step, {begin, end});
      if (!rows) all = tl::unexpected(rows.error());
      if (rows) written += *rows;
      return rows.has_value();
    });
    if (!all) return all;
    if (auto noted = note_step(step); !noted) return noted;
    return database.run("COMMIT");
  }();
  if (!done) {
    closer.error = done.error();
    return tl::unexpected(
        SqliteError{done.error().cause, "cannot write " + file_.path().string() + ": " + done.error().text});
  }
  closer.committed = true;
  each_kind(records, [&](Kind kind, const Record* begin, const Record* end) {
    return !on_part_ || on_part_(kind, static_cast<std::uint64_t>(end - begin));
  });
  return written;
}

SqliteResult<void> SqliteSink::prepare_database() {
  SqliteDatabase& database = file_.database();
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

SqliteResult<std::uint64_t> SqliteSink::write_kind(Kind kind, Step step, Records records) {
  if (auto opened = open_partition(kind, step); !opened) return tl::unexpected(opened.error());
  Output& output = outputs_[static_cast<std::size_t>(kind)];
  std::uint64_t written = 0;
  std::size_t unreported = 0;
  for (const Record* at = records.first; at != records.second;) {
    const bool many = static_cast<std::size_t>(records.second - at) >= kRowsOfInsert;
    const std::size_t rows = many ? kRowsOfInsert : 1;
    if (auto inserted = insert(output, many ? output.insert_many : output.insert_one, at, rows); !inserted)
      return tl::unexpected(inserted.error());
    written += static_cast<std::uint64_t>(file_.database().changed_rows());
    at += rows;
    unreported += rows;
    if (unreported < kRowsBetweenReports) continue;
    unreported = 0;
    // Nothing is committed yet: this only shows progress.
    if (on_part_ && !on_part_(kind, 0))
      return tl::unexpected(SqliteError{SqliteError::Cause::environment, "stop() timed out"});
  }
  return written;
}

SqliteResult<void> SqliteSink::open_partition(Kind kind, Step step) {
  Output& output = outputs_[static_cast<std::size_t>(kind)];
  const PartitionName partition = partition_of(metric_id_of(kind), step.value);
  if (output.first_step == partition.first_step) return {};
  SqliteDatabase& database = file_.database();
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

SqliteResult<void> SqliteSink::insert(Output& output, SqliteStatement& statement, const Record* begin,
                                      std::size_t rows) {
  statement.bind(0, std::int64_t{rank_.value});
  statement.bind(1, begin->step);
  int parameter = 2;
  for (const Record* record = begin; record != begin + rows; ++record) {
    const auto target =
        targets_.id_of(file_.database(), *record, output.has_micro_step ? record->micro_step : 0);
    if (!target) return tl::unexpected(target.error());
    statement.bind(parameter++, *target);
    std::int64_t nan_mask = 0;
    for (const MetricStat& stat : output.stats) {
      const double value = record->values[stat.value];
      const bool measured = (record->mask >> stat.value & 1U) != 0;
      if (measured && std::isnan(value)) nan_mask |= std::int64_t{1} << stat.nan_bit;
      measured ? statement.bind(parameter++, value) : statement.bind_null(parameter++);
    }
    statement.bind(parameter++, nan_mask);
  }
  return statement.run();
}

SqliteResult<void> SqliteSink::note_step(Step step) {
  note_step_.bind(0, std::int64_t{rank_.value});
  note_step_.bind(1, step.value);
  return note_step_.run();
}

void SqliteSink::release_statements() {
  note_step_ = {};
  targets_.forget();
  for (Output& output : outputs_) {
    output.insert_one = {};
    output.insert_many = {};
    output.first_step = -1;
  }
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/rank_database.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <system_error>
#include <utility>

#include "writers/sinks/metrics_schema.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using Access = SqliteDatabase::Access;

// A rank locks its database for milliseconds.
constexpr std::chrono::seconds kLockedAtMost{10};

bool is_empty_or_missing(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return error || size == 0;
}

// Opens the database and reads its first page, so that an unreadable database fails here.
SqliteResult<SqliteDatabase> open_as(const fs::path& path, Access access) {
  auto database = SqliteDatabase::open(path, access);
  if (!database) return database;
  database->set_busy_timeout(kLockedAtMost);
  if (auto only = database->run("PRAGMA query_only = ON"); !only) return tl::unexpected(only.error());
  if (auto read = database->integer("SELECT count(*) FROM sqlite_schema"); !read)
    return tl::unexpected(read.error());
  return database;
}

// Prefers a connection that may write, although no statement writes: only such a connection can roll back the
// unfinished transaction of a killed rank, and remove the log's side files when it closes.
SqliteResult<SqliteDatabase> open_any(const fs::path& path) {
  auto database = open_as(path, Access::read_write);
  if (database) return database;
  if (auto reader = open_as(path, Access::read_only)) return reader;
  // This user may not write to the directory, so the log's shared memory cannot be made there.
  if (is_empty_or_missing(path.string() + "-wal")) {
    if (auto closed = open_as(path, Access::read_only_closed)) return closed;
  }
  return database;
}

enum class Content { none_yet, ours, other };

SqliteResult<Content> content_of(SqliteDatabase& database) {
  // Tables, not views: a view may never end.
  auto row = database.prepare(
      "SELECT count(*), sum(type = 'table' AND name IN ('monitoring_metrics', 'metric_stats', "
      "'monitoring_targets')) FROM sqlite_schema");
  if (!row) return tl::unexpected(row.error());
  const auto found = row->step();
  if (!found) return tl::unexpected(found.error());
  const std::int64_t objects = row->integer(0);
  const std::int64_t known = row->integer(1);
  row->reset();
  const auto application = database.integer("PRAGMA application_id");
  if (!application) return tl::unexpected(application.error());
  const auto version = database.integer("PRAGMA user_version");
  if (!version) return tl::unexpected(version.error());
  if (objects == 0 && *application == 0) return Content::none_yet;
  const bool ours = *application == kMetricsApplicationId && *version == kMetricsSchemaVersion && known == 3;
  return ours ? Content::ours : Content::other;
}

std::string sqlite_error_text(const fs::path& path, const SqliteError& error) {
  return path.string() + ": " + error.text + "; expected a database that gradmon writes";
}

std::optional<double> number_of(const SqliteValue& value) {
  if (value.type == SqliteValue::Type::real) return value.real;
  if (value.type == SqliteValue::Type::integer) return static_cast<double>(value.integer);
  return std::nullopt;
}

}  // namespace

tl::expected<TensorNote, std::string> TensorNotes::at(std::int64_t target_id, std::int64_t step) {
  for (SqliteStatement* const statement : {&last_, &next_}) {
    statement->bind(1, target_id);
    statement->bind(3, step);
  }
  TensorNote note;
  const auto last = last_.step();
  if (!last) return tl::unexpected(sqlite_error_text(path_, last.error()));
  if (*last) {
    note.first_step = last_.integer(0);
    note.shape = std::string(last_.value(1).text);
    note.dtype = std::string(last_.value(2).text);
    last_.reset();
  }
  const auto next = next_.step();
  if (!next) return tl::unexpected(sqlite_error_text(path_, next.error()));
  if (*next) {
    note.last_step = next_.integer(0) - 1;
    next_.reset();
  }
  return note;
}

tl::expected<RankDatabase, std::string> RankDatabase::open(const fs::path& path) {
  RankDatabase made;
  made.path_ = path;
  auto database = open_any(path);
  if (!database) return tl::unexpected(made.describe(database.error()));
  made.database_ = std::move(*database);
  if (auto begun = made.database_.run("BEGIN"); !begun) return tl::unexpected(made.describe(begun.error()));
  const auto content = content_of(made.database_);
  if (!content) return tl::unexpected(made.describe(content.error()));
  if (*content == Content::other)
    return tl::unexpected(path.string() +
                          ": found another database; expected one of gradmon's, schema version " +
                          std::to_string(kMetricsSchemaVersion));
  if (*content == Content::ours) {
    auto metrics = gradmon::read_metrics(made.database_);
    if (!metrics) return tl::unexpected(made.describe(metrics.error()));
    made.metrics_ = std::move(*metrics);
  }
  if (auto ended = made.database_.run("COMMIT"); !ended) return tl::unexpected(made.describe(ended.error()));
  return made;
}

tl::expected<void, std::string> RankDatabase::read_page(const StoredMetric& metric,
                                                        const std::string& partition, const StepRange& steps,
                                                        Place& place, std::vector<Row>& rows) {
  rows.clear();
  while (rows.empty()) {
    if (!place.in_rank) {
      const auto found = find_rank(partition, place);
      if (!found) return tl::unexpected(describe(found.error()));
      if (!*found) return {};
    }
    if (auto read = read_rows(metric, partition, steps, place, rows); !read)
      return tl::unexpected(describe(read.error()));
  }
  return {};
}

// Moves to the first rank after place.rank.
SqliteResult<bool> RankDatabase::find_rank(const std::string& partition, Place& place) {
  auto next =
      database_.prepare("SELECT rank FROM " + sql_name(partition) + " WHERE rank > ? ORDER BY rank LIMIT 1");
  if (!next) return tl::unexpected(next.error());
  next->bind(0, place.rank);
  const auto row = next->step();
  if (!row || !*row) return row;
  place = {next->integer(0), true, -1, -1};
  return true;
}

SqliteResult<void> RankDatabase::read_rows(const StoredMetric& metric, const std::string& partition,
                                           const StepRange& steps, Place& place, std::vector<Row>& rows) {
  std::string columns = "step, target_id, nan_mask";
  for (const std::string& stat : metric.stats) columns += ", " + sql_name(stat);
  auto page =
      database_.prepare("SELECT " + columns + " FROM " + sql_name(partition) +
                        " WHERE rank = ?1 AND step BETWEEN ?2 AND ?3 AND (step, target_id) > (?4, ?5) "
                        "ORDER BY rank, step, target_id LIMIT " +
                        std::to_string(kPageRows));
  if (!page) return tl::unexpected(page.error());
  page->bind(0, place.rank);
  page->bind(1, std::max(steps.first, place.step));
  page->bind(2, steps.last);
  page->bind(3, place.step);
  page->bind(4, place.target_id);
  for (;;) {
    const auto found = page->step();
    if (!found) return tl::unexpected(found.error());
    if (!*found) break;
    Row row{place.rank, page->integer(0), page->integer(1), page->integer(2)};
    for (std::size_t i = 0; i < metric.stats.size(); ++i)
      row.values.push_back(number_of(page->value(static_cast<int>(i) + 3)));
    rows.push_back(std::move(row));
  }
  place.in_rank = rows.size() == kPageRows;
  if (!rows.empty()) {
    place.step = rows.back().step;
    place.target_id = rows.back().target_id;
  }
  return {};
}

tl::expected<const StoredTarget*, std::string> RankDatabase::target(std::int64_t id) {
  const auto known = targets_.find(id);
  if (known != targets_.end()) return &known->second;
  if (auto read = read_targets(); !read) return tl::unexpected(describe(read.error()));
  const auto found = targets_.find(id);
  return found == targets_.end() ? nullptr : &found->second;
}

tl::expected<TensorNotes, std::string> RankDatabase::tensors(std::int64_t metric_id, std::int64_t rank) {
  const std::string notes =
      " FROM target_tensors WHERE metric_id = ?1 AND target_id = ?2 AND rank = ?3 AND step ";
  auto last = database_.prepare("SELECT step, shape, dtype" + notes + "<= ?4 ORDER BY step DESC LIMIT 1");
  if (!last) return tl::unexpected(describe(last.error()));
  auto next = database_.prepare("SELECT step" + notes + "> ?4 ORDER BY step LIMIT 1");
  if (!next) return tl::unexpected(describe(next.error()));
  for (SqliteStatement* const statement : {&*last, &*next}) {
    statement->bind(0, metric_id);
    statement->bind(2, rank);
  }
  return TensorNotes(path_, std::move(*last), std::move(*next));
}

// Reads the targets added since the last call.
SqliteResult<void> RankDatabase::read_targets() {
  auto rows = database_.prepare(
      "SELECT target_id, target_name, vpp_stage, micro_step FROM monitoring_targets WHERE target_id > ? "
      "ORDER BY target_id");
  if (!rows) return tl::unexpected(rows.error());
  rows->bind(0, last_target_);
  for (;;) {
    const auto row = rows->step();
    if (!row) return tl::unexpected(row.error());
    if (!*row) return {};
    last_target_ = std::max(last_target_, rows->integer(0));
    targets_.try_emplace(rows->integer(0),
                         StoredTarget{std::string(rows->value(1).text), rows->integer(2), rows->integer(3)});
  }
}

std::string RankDatabase::describe(const SqliteError& error) const { return sqlite_error_text(path_, error); }

StepRange steps_of(const std::string& partition) {
  long long id = 0;
  long long first = 0;
  long long last = -1;
  std::sscanf(partition.c_str(), "metric_%lld_step_%lld_%lld", &id, &first, &last);
  return {first, last};
}

}  // namespace gradmon

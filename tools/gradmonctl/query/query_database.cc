// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/query/query_database.h"

#include <charconv>
#include <string_view>
#include <utility>

#include "writers/sinks/sqlite/metrics_schema.h"

namespace gradmon {
namespace {

constexpr const char* kTables =
    "v_metrics (rank, step, metric, target, vpp_stage, micro_step, op, value), v_nonfinite, v_layer_step, "
    "v_files (rank, run_id, path)";

SqliteResult<void> add_files(SqliteDatabase& database, const std::vector<RankFile>& files) {
  if (auto made = database.run("CREATE TABLE v_files (rank INTEGER, run_id TEXT, path TEXT)"); !made)
    return made;
  auto insert = database.prepare("INSERT INTO v_files VALUES (?, ?, ?)");
  if (!insert) return tl::unexpected(insert.error());
  for (const RankFile& file : files) {
    const std::string path = file.path.string();
    file.rank < 0 ? insert->bind_null(0) : insert->bind(0, std::int64_t{file.rank});
    insert->bind(1, std::string_view(file.run_id));
    insert->bind(2, std::string_view(path));
    if (auto added = insert->run(); !added) return added;
  }
  return {};
}

SqliteResult<void> add_tables(SqliteDatabase& database, const std::shared_ptr<RankDatabases>& databases) {
  if (auto added = add_table(database, "v_metrics", std::make_unique<MetricValues>(databases)); !added)
    return added;
  if (auto added = add_function(database, "layer_of", layer_of); !added) return added;
  for (const MetricsView& view :
       derived_views("(SELECT *, layer_of(target) AS layer FROM v_metrics) WHERE layer <> ''")) {
    if (auto added = database.run("CREATE VIEW " + view.name + " AS " + view.select); !added) return added;
  }
  if (auto added = add_files(database, databases->files()); !added) return added;
  // The query must not reach other files.
  database.forbid_attaching();
  return database.run("PRAGMA query_only = ON");
}

// Translates a pattern with * and ? into one of GLOB, in which "[" begins a class of characters.
std::string glob_of(const std::string& pattern) {
  std::string glob;
  for (const char c : pattern) glob += c == '[' ? std::string("[[]") : std::string(1, c);
  return glob;
}

bool parse_step(std::string_view text, std::int64_t& step) {
  if (text.empty()) return true;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), step);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() && step >= 0;
}

}  // namespace

tl::expected<StepRange, std::string> parse_steps(const std::string& text) {
  StepRange steps;
  const std::string_view all = text;
  const std::size_t colon = all.find(':');
  const bool valid = colon == std::string_view::npos ? !all.empty() && parse_step(all, steps.first)
                                                     : parse_step(all.substr(0, colon), steps.first) &&
                                                           parse_step(all.substr(colon + 1), steps.last);
  if (colon == std::string_view::npos) steps.last = steps.first;
  if (!valid || steps.first > steps.last)
    return tl::unexpected("found \"" + text + "\", expected steps such as 100:200, 100:, :200 or 100");
  return steps;
}

tl::expected<QueryDatabase, std::string> QueryDatabase::make(std::shared_ptr<RankDatabases> databases) {
  QueryDatabase made;
  auto database = SqliteDatabase::open("", SqliteDatabase::Access::in_memory);
  if (!database) return tl::unexpected(database.error().text);
  made.database_ = std::move(*database);
  if (auto added = add_tables(made.database_, databases); !added) return tl::unexpected(added.error().text);
  return made;
}

tl::expected<SqliteStatement, std::string> QueryDatabase::prepare(const std::string& sql) {
  std::string rest;
  auto statement = database_.prepare(sql, &rest);
  if (!statement) return tl::unexpected(statement.error().text + "; the tables are " + kTables);
  if (!statement->prepared())
    return tl::unexpected("found no SQL statement; the tables are " + std::string(kTables));
  if (rest.find_first_not_of(" \t\r\n;") != std::string::npos)
    return tl::unexpected("expected one SQL statement; found more: " + rest);
  if (statement->columns() == 0)
    return tl::unexpected(std::string("expected an SQL statement that reads, such as SELECT"));
  return std::move(*statement);
}

tl::expected<SqliteStatement, std::string> QueryDatabase::prepare(const ValueFilter& filter) {
  std::string sql =
      "SELECT rank, step, metric, target, vpp_stage, micro_step, op, ifnull(value, 'nan') AS value FROM "
      "v_metrics "
      "WHERE step >= " +
      std::to_string(filter.steps.first) + " AND step <= " + std::to_string(filter.steps.last);
  if (!filter.metric.empty()) sql += " AND metric = " + sql_text(filter.metric);
  if (!filter.target.empty()) sql += " AND target GLOB " + sql_text(glob_of(filter.target));
  if (!filter.op.empty()) sql += " AND op = " + sql_text(filter.op);
  if (filter.rank >= 0) sql += " AND rank = " + std::to_string(filter.rank);
  return prepare(sql);
}

}  // namespace gradmon

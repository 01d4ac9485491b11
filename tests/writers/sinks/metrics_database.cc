// SPDX-License-Identifier: Apache-2.0
#include "tests/writers/sinks/metrics_database.h"

#include <charconv>

#include "tests/writers/sample_records.h"
#include "writers/sinks/metrics_schema.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

std::string as_python_prints(double value) {
  char text[40];
  std::string shortest(text, std::to_chars(text, text + sizeof text, value).ptr);
  return shortest.find_first_not_of("-0123456789") == std::string::npos ? shortest + ".0" : shortest;
}

std::string text_of(const SqliteValue& value) {
  switch (value.type) {
    case SqliteValue::Type::null:
      return "";
    case SqliteValue::Type::integer:
      return std::to_string(value.integer);
    case SqliteValue::Type::real:
      return as_python_prints(value.real);
    case SqliteValue::Type::text:
      return std::string(value.text);
  }
  return "";
}

SqliteResult<TextRows> rows_of(const fs::path& path, const std::string& query) {
  auto database = SqliteDatabase::open(path, SqliteDatabase::Access::read_write);
  if (!database) return tl::unexpected(database.error());
  database->set_busy_timeout(std::chrono::seconds(10));
  auto statement = database->prepare(query);
  if (!statement) return tl::unexpected(statement.error());
  TextRows rows;
  for (;;) {
    const auto row = statement->step();
    if (!row) return tl::unexpected(row.error());
    if (!*row) return rows;
    std::string line;
    for (int i = 0; i < statement->columns(); ++i) line += (i == 0 ? "" : "|") + text_of(statement->value(i));
    rows.push_back(std::move(line));
  }
}

}  // namespace

TextRows query_rows(const fs::path& database, const std::string& query) {
  auto rows = rows_of(database, query);
  return rows ? std::move(*rows) : TextRows{"error: " + rows.error().text};
}

std::int64_t query_integer(const fs::path& database, const std::string& query) {
  const TextRows rows = query_rows(database, query);
  std::int64_t value = -1;
  if (!rows.empty()) std::from_chars(rows[0].data(), rows[0].data() + rows[0].size(), value);
  return value;
}

std::string integrity_error(const fs::path& database) {
  const TextRows rows = query_rows(database, "PRAGMA integrity_check");
  return rows == TextRows{"ok"} ? "" : rows.empty() ? "no answer" : rows.front();
}

std::uint64_t stored_rows(const fs::path& database) {
  std::uint64_t all = 0;
  for (const std::string& partition : query_rows(
           database, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'metric_[0-9]*'")) {
    if (partition.rfind("metric_", 0) != 0) return 0;
    all += static_cast<std::uint64_t>(query_integer(database, "SELECT count(*) FROM " + partition));
  }
  return all;
}

std::uint64_t stored_rows_in(const fs::path& directory) {
  std::uint64_t all = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    const std::string extension = entry.path().extension().string();
    const bool database = name == kMetricsFileName || extension.rfind(".aside-", 0) == 0;
    if (database && name.find("-journal") == std::string::npos) all += stored_rows(entry.path());
  }
  return all;
}

Layout layout_with(std::vector<Op> ops, std::uint64_t revision) {
  Layout layout;
  layout.revision = Revision{revision};
  layout.ops = std::move(ops);
  return layout;
}

Record norm_record(std::int64_t step, std::uint32_t target, double norm) {
  Record record = plain_record(step, 0);
  record.target = target;
  record.values[static_cast<std::size_t>(Op::norm)] = norm;
  return record;
}

std::vector<Record> norm_records(NameTable& names, std::int64_t step, std::uint32_t count) {
  std::vector<Record> records;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto target = names.intern("layers." + std::to_string(i) + ".weight");
    records.push_back(norm_record(step, target, static_cast<double>(step * 1000 + i)));
  }
  return records;
}

MetricsFile::Options file_options(const fs::path& directory) {
  MetricsFile::Options options;
  options.directory = [directory] {
    fs::create_directories(directory);
    return directory;
  };
  options.busy_timeout = std::chrono::milliseconds(50);
  return options;
}

}  // namespace gradmon

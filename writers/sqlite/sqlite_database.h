// SPDX-License-Identifier: Apache-2.0
// An SQLite database and its prepared statements. Errors are values; nothing is thrown. One thread at a
// time.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

struct sqlite3;
struct sqlite3_stmt;

namespace gradmon {

struct SqliteError {
  enum class Cause : std::uint8_t {
    busy,        // another process holds a lock
    damaged,     // the file is no database, or its content is not what the statement expects
    environment  // disk, memory, permissions
  };
  Cause cause = Cause::environment;
  std::string text;  // SQLite's message, without the file's name
};

template <class T>
using SqliteResult = tl::expected<T, SqliteError>;

// A value of a row. Text is valid until the next call of its statement.
struct SqliteValue {
  enum class Type : std::uint8_t { null, integer, real, text };
  Type type = Type::null;
  std::int64_t integer = 0;
  double real = 0;
  std::string_view text = {};  // also a blob

  static SqliteValue of(std::int64_t value) { return {Type::integer, value, 0, {}}; }
  static SqliteValue of(double value) { return {Type::real, 0, value, {}}; }
  static SqliteValue of(std::string_view value) { return {Type::text, 0, 0, value}; }
};

// Parameters and columns are counted from 0. A NaN is bound as null.
class SqliteStatement {
 public:
  SqliteStatement() = default;

  bool prepared() const { return statement_ != nullptr; }
  int columns() const;
  std::string column_name(int column) const;
  int parameters() const;

  void bind(int parameter, std::int64_t value);
  void bind(int parameter, double value);
  // The text must stay valid until the statement is reset.
  void bind(int parameter, std::string_view text);
  void bind_null(int parameter);
  void bind(int parameter, const SqliteValue& value);

  // True: value() reads the row; false: no further row exists, and the statement is reset.
  [[nodiscard]] SqliteResult<bool> step();
  // Runs a statement to its end, ignoring its rows.
  [[nodiscard]] SqliteResult<void> run();
  void reset();

  SqliteValue value(int column) const;
  std::int64_t integer(int column) const { return value(column).integer; }

  struct Finalizer {
    void operator()(sqlite3_stmt* statement) const;
  };

 private:
  friend class SqliteDatabase;
  std::unique_ptr<sqlite3_stmt, Finalizer> statement_;
};

// Destroy its statements first.
class SqliteDatabase {
 public:
  enum class Access : std::uint8_t {
    read_only,
    read_only_closed,  // for a file that no process has open: needs no lock and no side file
    read_write,        // the file must exist; with unmapped_vfs(), if available
    in_memory          // `path` is ignored
  };

  SqliteDatabase() = default;

  // Does not follow triggers and does not trust functions in the file's schema.
  [[nodiscard]] static SqliteResult<SqliteDatabase> open(const std::filesystem::path& path, Access access);

  bool is_open() const { return database_ != nullptr; }
  // The time for which a statement waits for another process's lock; then it fails with Cause::busy.
  void set_busy_timeout(std::chrono::milliseconds timeout);
  // Runs statements separated by ";", ignoring their rows.
  [[nodiscard]] SqliteResult<void> run(const std::string& statements);
  // `rest`, if not null, receives the text after the first statement.
  [[nodiscard]] SqliteResult<SqliteStatement> prepare(const std::string& statement,
                                                      std::string* rest = nullptr);
  // The first value of the first row as an integer; 0 without a row.
  [[nodiscard]] SqliteResult<std::int64_t> integer(const std::string& query);
  // The same as text.
  [[nodiscard]] SqliteResult<std::string> text(const std::string& query);

  // From now on no other file can be reached by ATTACH or VACUUM INTO.
  void forbid_attaching();

  std::int64_t last_row_id() const;
  std::int64_t changed_rows() const;  // by the last statement
  sqlite3* handle() const { return database_.get(); }

  struct Closer {
    void operator()(sqlite3* database) const;
  };

 private:
  std::unique_ptr<sqlite3, Closer> database_;
};

// "grad.weight" as an SQL text: 'grad.weight'.
std::string sql_text(std::string_view text);
// "min" as an SQL name: "min".
std::string sql_name(std::string_view name);

// Tables and functions of an SQLite database that this program computes. One thread at a time.

// A condition of a query on one column.
struct ColumnConstraint {
  enum class Relation : std::uint8_t { equal, greater, greater_equal, less, less_equal, glob };
  int column = 0;
  Relation relation = Relation::equal;
};

struct BoundConstraint {
  ColumnConstraint on;
  SqliteValue value;  // valid during the call
};

// The rows of one scan of a table.
class RowCursor {
 public:
  virtual ~RowCursor() = default;
  // Goes to the next row, at first to the first one. False: no further row. An error ends the query.
  virtual tl::expected<bool, std::string> next() = 0;
  // A value of the current row. A text is valid until next().
  virtual SqliteValue value(int column) const = 0;
  // Identifies the current row, equally in each scan: SQLite compares the rows of two scans by it.
  virtual std::int64_t row_id() const = 0;
};

class VirtualTable {
 public:
  virtual ~VirtualTable() = default;
  // Their declarations: "rank INTEGER, step INTEGER".
  virtual std::string columns() const = 0;
  // True if scan() uses the constraint. SQLite checks the rows again.
  virtual bool uses(const ColumnConstraint& constraint) const = 0;
  virtual std::unique_ptr<RowCursor> scan(const std::vector<BoundConstraint>& constraints) = 0;
};

// The table can be read under its name until the database is closed. The database owns it.
[[nodiscard]] SqliteResult<void> add_table(SqliteDatabase& database, const std::string& name,
                                           std::unique_ptr<VirtualTable> table);

// Adds a function from text to text. The result is copied before the next call.
using TextFunction = std::string_view (*)(std::string_view text);
[[nodiscard]] SqliteResult<void> add_function(SqliteDatabase& database, const std::string& name,
                                              TextFunction function);

// The GLOB operator of SQL.
bool matches_glob(const std::string& pattern, const std::string& text);

}  // namespace gradmon

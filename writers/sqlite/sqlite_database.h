// SPDX-License-Identifier: Apache-2.0
// An SQLite database and its prepared statements. Errors are values; nothing is thrown. One thread at a
// time.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
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
};

// Parameters and columns are counted from 0. A NaN is bound as null.
class SqliteStatement {
 public:
  SqliteStatement() = default;

  bool prepared() const { return statement_ != nullptr; }
  int columns() const;

  void bind(int parameter, std::int64_t value);
  void bind(int parameter, double value);
  // The text must stay valid until the statement is reset.
  void bind(int parameter, std::string_view text);
  void bind_null(int parameter);

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
    read_write,  // the file must exist
    in_memory    // `path` is ignored
  };

  SqliteDatabase() = default;

  // Does not follow triggers and does not trust functions in the file's schema.
  [[nodiscard]] static SqliteResult<SqliteDatabase> open(const std::filesystem::path& path, Access access);

  bool is_open() const { return database_ != nullptr; }
  // The time for which a statement waits for another process's lock; then it fails with Cause::busy.
  void set_busy_timeout(std::chrono::milliseconds timeout);
  // Runs statements separated by ";", ignoring their rows.
  [[nodiscard]] SqliteResult<void> run(const std::string& statements);
  [[nodiscard]] SqliteResult<SqliteStatement> prepare(const std::string& statement);
  // Waits until the file is on the disk. Takes no lock; not within a transaction.
  [[nodiscard]] SqliteResult<void> sync();
  // The first value of the first row as an integer; 0 without a row.
  [[nodiscard]] SqliteResult<std::int64_t> integer(const std::string& query);
  // The same as text.
  [[nodiscard]] SqliteResult<std::string> text(const std::string& query);

  std::int64_t last_row_id() const;
  std::int64_t changed_rows() const;  // by the last statement

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

}  // namespace gradmon

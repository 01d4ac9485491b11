// SPDX-License-Identifier: Apache-2.0
#include "writers/sqlite/sqlite_database.h"

#include <sqlite3.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace gradmon {
namespace {

SqliteError::Cause classify(int code) {
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return SqliteError::Cause::busy;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_ERROR:
    case SQLITE_MISMATCH:
    case SQLITE_CONSTRAINT:
    case SQLITE_FORMAT:
      return SqliteError::Cause::damaged;
    default:
      return SqliteError::Cause::environment;
  }
}

tl::unexpected<SqliteError> failure(sqlite3* database, int code) {
  // The handle's message is about its last call; for a failed open it may be empty.
  std::string text = database != nullptr ? sqlite3_errmsg(database) : sqlite3_errstr(code);
  const int errno_of_call = database != nullptr ? sqlite3_system_errno(database) : 0;
  const bool of_file = (code & 0xff) == SQLITE_IOERR || (code & 0xff) == SQLITE_CANTOPEN;
  if (of_file && errno_of_call != 0) text += " (" + std::system_category().message(errno_of_call) + ")";
  if (classify(code) == SqliteError::Cause::busy)
    text += " (another process reads or writes it, or its file system has no locks)";
  return tl::unexpected(SqliteError{classify(code), std::move(text)});
}

// If SQLite cannot open a file for writing, it opens the file for reading, and does not keep the reason.
tl::unexpected<SqliteError> only_readable(int error) {
  std::string text = "it cannot be opened for writing";
  if (error != 0) text += " (" + std::system_category().message(error) + ")";
  return tl::unexpected(SqliteError{SqliteError::Cause::environment, std::move(text)});
}

std::string quoted(std::string_view text, char quote) {
  std::string all(1, quote);
  for (const char c : text) {
    if (c == quote) all += quote;
    all += c;
  }
  return all + quote;
}

// Prevents the file's schema from doing harm in this process.
void distrust(sqlite3* database) {
  sqlite3_db_config(database, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_db_config(database, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(database, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
}

}  // namespace

void SqliteStatement::Finalizer::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
void SqliteDatabase::Closer::operator()(sqlite3* database) const { sqlite3_close_v2(database); }

int SqliteStatement::columns() const { return sqlite3_column_count(statement_.get()); }

void SqliteStatement::bind(int parameter, std::int64_t value) {
  sqlite3_bind_int64(statement_.get(), parameter + 1, value);
}
void SqliteStatement::bind(int parameter, double value) {
  sqlite3_bind_double(statement_.get(), parameter + 1, value);
}
void SqliteStatement::bind(int parameter, std::string_view text) {
  sqlite3_bind_text64(statement_.get(), parameter + 1, text.data() != nullptr ? text.data() : "", text.size(),
                      SQLITE_STATIC, SQLITE_UTF8);
}
void SqliteStatement::bind_null(int parameter) { sqlite3_bind_null(statement_.get(), parameter + 1); }

SqliteResult<bool> SqliteStatement::step() {
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) {
    reset();
    return false;
  }
  auto error = failure(sqlite3_db_handle(statement_.get()), code);
  reset();
  return error;
}

SqliteResult<void> SqliteStatement::run() {
  for (;;) {
    const auto row = step();
    if (!row) return tl::unexpected(row.error());
    if (!*row) return {};
  }
}

void SqliteStatement::reset() { sqlite3_reset(statement_.get()); }

SqliteValue SqliteStatement::value(int column) const {
  sqlite3_stmt* const statement = statement_.get();
  switch (sqlite3_column_type(statement, column)) {
    case SQLITE_INTEGER:
      return {SqliteValue::Type::integer, sqlite3_column_int64(statement, column)};
    case SQLITE_FLOAT:
      return {SqliteValue::Type::real, 0, sqlite3_column_double(statement, column)};
    case SQLITE_NULL:
      return {};
    default: {
      const auto* const bytes = static_cast<const char*>(sqlite3_column_blob(statement, column));
      const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement, column));
      return {SqliteValue::Type::text, 0, 0, {bytes, bytes != nullptr ? size : 0}};
    }
  }
}

SqliteResult<SqliteDatabase> SqliteDatabase::open(const std::filesystem::path& path, Access access) {
  // SQLite may take "file:…" for a URI, but not "./file:…".
  const std::filesystem::path file = path.is_absolute() ? path : "." / path;
  const std::string name = access == Access::in_memory ? ":memory:" : file.string();
  const int flags = access == Access::read_only    ? SQLITE_OPEN_READONLY
                    : access == Access::read_write ? SQLITE_OPEN_READWRITE
                                                   : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  sqlite3* made = nullptr;
  errno = 0;
  const int code = sqlite3_open_v2(name.c_str(), &made, flags | SQLITE_OPEN_NOMUTEX, nullptr);
  const int errno_of_open = errno;
  SqliteDatabase database;
  database.database_.reset(made);
  if (code != SQLITE_OK) return failure(made, code);
  if (access == Access::read_write && sqlite3_db_readonly(made, "main") == 1)
    return only_readable(errno_of_open);
  sqlite3_extended_result_codes(made, 1);
  distrust(made);
  return database;
}

void SqliteDatabase::set_busy_timeout(std::chrono::milliseconds timeout) {
  sqlite3_busy_timeout(database_.get(), static_cast<int>(timeout.count()));
}

SqliteResult<void> SqliteDatabase::run(const std::string& statements) {
  const int code = sqlite3_exec(database_.get(), statements.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) return failure(database_.get(), code);
  return {};
}

SqliteResult<SqliteStatement> SqliteDatabase::prepare(const std::string& statement) {
  sqlite3_stmt* made = nullptr;
  const int code =
      sqlite3_prepare_v3(database_.get(), statement.c_str(), -1, SQLITE_PREPARE_PERSISTENT, &made, nullptr);
  if (code != SQLITE_OK) return failure(database_.get(), code);
  SqliteStatement prepared;
  prepared.statement_.reset(made);
  return prepared;
}

SqliteResult<void> SqliteDatabase::sync() {
  sqlite3_file* file = nullptr;
  sqlite3_file_control(database_.get(), "main", SQLITE_FCNTL_FILE_POINTER, &file);
  if (file->pMethods->xSync(file, SQLITE_SYNC_NORMAL) == SQLITE_OK) return {};
  const std::string cause = std::system_category().message(errno);
  return tl::unexpected(SqliteError{SqliteError::Cause::environment, "cannot sync it: " + cause});
}

SqliteResult<std::int64_t> SqliteDatabase::integer(const std::string& query) {
  auto statement = prepare(query);
  if (!statement) return tl::unexpected(statement.error());
  const auto row = statement->step();
  if (!row) return tl::unexpected(row.error());
  return *row ? statement->integer(0) : 0;
}

SqliteResult<std::string> SqliteDatabase::text(const std::string& query) {
  auto statement = prepare(query);
  if (!statement) return tl::unexpected(statement.error());
  const auto row = statement->step();
  if (!row) return tl::unexpected(row.error());
  return *row ? std::string(statement->value(0).text) : "";
}

std::int64_t SqliteDatabase::last_row_id() const { return sqlite3_last_insert_rowid(database_.get()); }
std::int64_t SqliteDatabase::changed_rows() const { return sqlite3_changes(database_.get()); }

std::string sql_text(std::string_view text) { return quoted(text, '\''); }
std::string sql_name(std::string_view name) { return quoted(name, '"'); }

}  // namespace gradmon

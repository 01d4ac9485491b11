// SPDX-License-Identifier: Apache-2.0
#include "writers/sqlite/sqlite_database.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <limits>

#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "writers/sqlite/unmapped_vfs.h"

using namespace gradmon;

namespace {

SqliteDatabase memory() {
  auto database = SqliteDatabase::open("", SqliteDatabase::Access::in_memory);
  REQUIRE(database);
  return std::move(*database);
}

SqliteStatement prepared(SqliteDatabase& database, const std::string& text) {
  auto statement = database.prepare(text);
  REQUIRE(statement);
  return std::move(*statement);
}

}  // namespace

TEST_CASE("values are read as they were bound") {
  SqliteDatabase database = memory();
  SqliteStatement query = prepared(database, "SELECT ?, ?, ?, ?, ?");
  query.bind(0, std::int64_t{-5});
  query.bind(1, -std::numeric_limits<double>::infinity());
  query.bind(2, std::string_view("a\0b", 3));
  query.bind_null(3);
  query.bind(4, std::nan(""));
  REQUIRE(query.step() == true);
  CHECK(query.columns() == 5);
  CHECK(query.integer(0) == -5);
  CHECK(query.value(1).real == -std::numeric_limits<double>::infinity());
  CHECK(query.value(2).text == std::string_view("a\0b", 3));
  CHECK(query.value(3).type == SqliteValue::Type::null);
  CHECK(query.value(4).type == SqliteValue::Type::null);
  CHECK(query.step() == false);
}

TEST_CASE("a statement is used again after its end and after an error") {
  SqliteDatabase database = memory();
  REQUIRE(database.run("CREATE TABLE t (a INTEGER PRIMARY KEY)"));
  SqliteStatement insert = prepared(database, "INSERT INTO t VALUES (?)");
  for (const std::int64_t value : {1, 2, 1, 3}) {
    insert.bind(0, value);
    const auto done = insert.run();
    const bool repeated = value == 1 && database.integer("SELECT count(*) FROM t") == 2;
    CHECK(done.has_value() != repeated);
  }
  CHECK(database.integer("SELECT count(*) FROM t") == 3);
  CHECK(database.last_row_id() == 3);
}

TEST_CASE("an error says what SQLite says") {
  SqliteDatabase database = memory();
  const auto wrong = database.prepare("SELECT a FROM nowhere");
  REQUIRE_FALSE(wrong);
  CHECK(wrong.error().text == "no such table: nowhere");
  CHECK(wrong.error().cause == SqliteError::Cause::damaged);
}

TEST_CASE("the text after the first statement is returned") {
  SqliteDatabase database = memory();
  std::string rest;
  REQUIRE(database.prepare("SELECT 1; SELECT 2", &rest));
  CHECK(rest == " SELECT 2");
}

TEST_CASE("a missing file is not made, and a file of any name is opened") {
  const TemporaryDirectory scratch;
  const auto missing = SqliteDatabase::open(scratch / "none.db", SqliteDatabase::Access::read_write);
  REQUIRE_FALSE(missing);
  CHECK(missing.error().text == "unable to open database file (No such file or directory)");
  CHECK_FALSE(std::filesystem::exists(scratch / "none.db"));
  const auto path = scratch / "a b?c#d%41.db";
  write_text(path, "");
  auto odd = SqliteDatabase::open(path, SqliteDatabase::Access::read_write);
  REQUIRE(odd);
  CHECK(odd->run("CREATE TABLE t (a)"));
  CHECK(std::filesystem::file_size(path) > 0);
}

TEST_CASE("a read-only database refuses to be changed") {
  const TemporaryDirectory scratch;
  const auto path = scratch / "a.db";
  write_text(path, "");
  {
    auto writer = SqliteDatabase::open(path, SqliteDatabase::Access::read_write);
    REQUIRE(writer);
    REQUIRE(writer->run("CREATE TABLE t (a); INSERT INTO t VALUES (4)"));
  }
  auto reader = SqliteDatabase::open(path, SqliteDatabase::Access::read_only);
  REQUIRE(reader);
  CHECK(reader->integer("SELECT a FROM t") == 4);
  CHECK_FALSE(reader->run("DELETE FROM t"));
}

TEST_CASE("a lock of another connection is waited for and then reported as busy") {
  const TemporaryDirectory scratch;
  const auto path = scratch / "a.db";
  write_text(path, "");
  auto one = SqliteDatabase::open(path, SqliteDatabase::Access::read_write);
  auto other = SqliteDatabase::open(path, SqliteDatabase::Access::read_write);
  REQUIRE(one);
  REQUIRE(other);
  REQUIRE(one->run("BEGIN EXCLUSIVE"));
  other->set_busy_timeout(std::chrono::milliseconds(20));
  const auto refused = other->run("BEGIN IMMEDIATE");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().cause == SqliteError::Cause::busy);
}

TEST_CASE("texts and names are quoted") {
  CHECK(sql_text("it's") == "'it''s'");
  CHECK(sql_name("a\"b") == "\"a\"\"b\"");
}

namespace {

using Access = SqliteDatabase::Access;

SqliteDatabase opened(const fs::path& path, Access access = Access::read_write) {
  auto database = SqliteDatabase::open(path, access);
  if (!database) throw std::runtime_error(database.error().text);
  database->set_busy_timeout(std::chrono::seconds(30));
  return std::move(*database);
}

fs::path new_database(const fs::path& path) {
  write_text(path, "");
  auto database = opened(path);
  if (!database.run("PRAGMA journal_mode = WAL; CREATE TABLE t (n INTEGER); INSERT INTO t VALUES (0)"))
    throw std::runtime_error("no database");
  return path;
}

fs::path index_of(const fs::path& path) { return path.string() + "-shm"; }

// The exit status of a process that runs `body`; 1000 and more: the signal that ended it.
int status_of(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

pid_t started(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body() ? 0 : 1);
  return child;
}

}  // namespace

TEST_CASE("an index that is truncated is an error and not a signal, and no row is lost") {
  REQUIRE(unmapped_vfs() != nullptr);
  const TemporaryDirectory scratch;
  const fs::path path = new_database(scratch / "a.db");
  {
    auto database = opened(path);
    REQUIRE(database.run("INSERT INTO t VALUES (1)"));
    fs::resize_file(index_of(path), 0);
    const auto inserted = database.run("INSERT INTO t VALUES (2)");
    REQUIRE(!inserted);
    CHECK(inserted.error().cause == SqliteError::Cause::environment);
    CHECK(!database.run("INSERT INTO t VALUES (3)"));
  }
  auto again = opened(path);
  CHECK(again.run("INSERT INTO t VALUES (4)"));
  CHECK(again.text("SELECT group_concat(n) FROM t").value() == "0,1,4");
}

TEST_CASE("an index that is truncated and extended within a transaction is rebuilt from the log") {
  const TemporaryDirectory scratch;
  const fs::path path = new_database(scratch / "a.db");
  {
    auto database = opened(path);
    REQUIRE(database.run("INSERT INTO t VALUES (1); BEGIN IMMEDIATE; INSERT INTO t VALUES (2)"));
    const auto size = fs::file_size(index_of(path));
    fs::resize_file(index_of(path), 0);
    fs::resize_file(index_of(path), size);
    static_cast<void>(database.run("COMMIT"));
    auto reader = opened(path, Access::read_only);
    static_cast<void>(reader.integer("SELECT count(*) FROM t"));
    static_cast<void>(database.run("INSERT INTO t VALUES (3)"));
  }
  auto again = opened(path);
  CHECK(again.text("PRAGMA integrity_check").value() == "ok");
  CHECK(again.integer("SELECT count(*) FROM t WHERE n < 2").value() == 2);
  CHECK(again.run("INSERT INTO t VALUES (4)"));
}

TEST_CASE("a connection sees what others have committed, and they see its own") {
  const TemporaryDirectory scratch;
  const fs::path path = new_database(scratch / "a.db");
  auto one = opened(path);
  auto other = opened(path);
  auto reader = opened(path, Access::read_only);  // with SQLite's own VFS
  for (int i = 1; i < 200; ++i) {
    REQUIRE((i % 2 == 0 ? one : other).run("UPDATE t SET n = n + 1"));
    if (i % 50 == 0) REQUIRE(one.run("PRAGMA wal_checkpoint(RESTART)"));
    REQUIRE(reader.integer("SELECT n FROM t").value() == i);
    REQUIRE((i % 3 == 0 ? one : other).integer("SELECT n FROM t").value() == i);
  }
}

TEST_CASE("an index of several regions is shared like a small one") {
  const TemporaryDirectory scratch;
  const fs::path path = new_database(scratch / "a.db");
  auto one = opened(path);
  auto other = opened(path);
  auto reader = opened(path, Access::read_only);
  for (SqliteDatabase* const database : {&one, &other})
    REQUIRE(database->run("PRAGMA wal_autocheckpoint = 0; PRAGMA synchronous = OFF"));
  const std::string rows =
      "WITH RECURSIVE many (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM many WHERE i < 1000) "
      "INSERT INTO t SELECT randomblob(3000) FROM many";  // 4 KiB pages: a page each
  for (int i = 1; i <= 12; ++i) {                         // a region has about 4,000 pages
    REQUIRE((i % 2 == 0 ? one : other).run(rows));
    REQUIRE(reader.integer("SELECT count(*) FROM t").value() == i * 1000 + 1);
    REQUIRE((i % 2 == 0 ? other : one).integer("SELECT count(*) FROM t").value() == i * 1000 + 1);
  }
  REQUIRE(fs::file_size(index_of(path)) >= 3 * 32768);
  CHECK(reader.text("PRAGMA integrity_check").value() == "ok");
  CHECK(one.run("PRAGMA wal_checkpoint(TRUNCATE)"));
  CHECK(other.text("PRAGMA integrity_check").value() == "ok");
  CHECK(other.run(rows));
  CHECK(reader.integer("SELECT count(*) FROM t").value() == 13'001);
}

TEST_CASE("processes that write at the same time lose no update") {
  const TemporaryDirectory scratch;
  const fs::path path = new_database(scratch / "a.db");
  constexpr int kUpdates = 400;
  std::vector<pid_t> writers;
  for (int process = 0; process < 3; ++process) {
    writers.push_back(started([&] {
      auto database = opened(path);
      if (!database.run("PRAGMA synchronous = OFF; PRAGMA wal_autocheckpoint = 7")) return false;
      for (int i = 0; i < kUpdates; ++i) {
        if (!database.run(
                "BEGIN IMMEDIATE; UPDATE t SET n = n + 1 WHERE n >= 0; INSERT INTO t VALUES (-1); COMMIT"))
          return false;
      }
      return true;
    }));
  }
  const pid_t reading = started([&] {
    auto database = opened(path, Access::read_only);
    for (std::int64_t last = 0, i = 0; i < 2000; ++i) {
      const auto torn = database.integer("SELECT max(n) <> count(*) - 1 FROM t");
      const auto updates = database.integer("SELECT max(n) FROM t");
      if (!torn || *torn != 0 || !updates || *updates < last) return false;
      last = *updates;
    }
    return true;
  });
  for (const pid_t writer : writers) CHECK(status_of(writer) == 0);
  CHECK(status_of(reading) == 0);
  auto database = opened(path);
  CHECK(database.integer("SELECT max(n) FROM t").value() == 3 * kUpdates);
  CHECK(database.integer("SELECT count(*) FROM t").value() == 3 * kUpdates + 1);
  CHECK(database.text("PRAGMA integrity_check").value() == "ok");
}

// SPDX-License-Identifier: Apache-2.0
#include "writers/sqlite/sqlite_database.h"

#include <cmath>
#include <limits>

#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

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

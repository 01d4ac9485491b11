// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/query/rank_database.h"

#include <chrono>

#include "control/debian_version.h"
#include "tests/tools/gradmonctl/query/rank_run.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

// Changes a database that its rank has written, as no rank does.
void change(const std::filesystem::path& path, const std::string& statements) {
  auto database = SqliteDatabase::open(path, SqliteDatabase::Access::read_write);
  REQUIRE(database.has_value());
  REQUIRE(database->run(statements).has_value());
}

// Of a rank that has ended: target 1 in step 0.
std::filesystem::path written_database(const TemporaryDirectory& output) {
  RankWriter rank(output.path(), 0);
  REQUIRE(rank.write(0, std::vector<std::string>{"a"}));
  return rank.database();
}

TEST_CASE("a target that the rank adds later is found") {
  const TemporaryDirectory output;
  RankWriter rank(output.path(), 0);
  REQUIRE(rank.write(0, std::vector<std::string>{"a"}));
  auto database = RankDatabase::open(rank.database());
  REQUIRE(database.has_value());
  CHECK((*database->target(1))->name == "a");
  CHECK(*database->target(2) == nullptr);
  REQUIRE(rank.write(1, std::vector<std::string>{"a", "b"}));
  CHECK((*database->target(2))->name == "b");
  CHECK((*database->target(1))->name == "a");
}

// A minute is a hundred times what it takes; with all targets read for each row it took several.
TEST_CASE("rows of unknown targets do not read all targets again") {
  const TemporaryDirectory output;
  const auto file = written_database(output);
  change(file,
         "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) "
         "INSERT INTO monitoring_targets SELECT i, 'target' || i, 0, 0 FROM n");
  auto database = RankDatabase::open(file);
  REQUIRE(database.has_value());
  int unknown = 0;
  const auto begun = std::chrono::steady_clock::now();
  for (int id = 100'001; id <= 120'000; ++id) unknown += *database->target(id) == nullptr ? 1 : 0;
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::minutes(1));
  CHECK(unknown == 20'000);
  CHECK((*database->target(100'000))->name == "target100000");
}

}  // namespace
}  // namespace gradmon

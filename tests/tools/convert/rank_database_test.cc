// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/rank_database.h"

#include <chrono>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/convert/rank_run.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

// Changes a database that its rank has written, as no rank does.
void change(const std::filesystem::path& path, const std::string& statements) {
  auto database = SqliteDatabase::open(path, SqliteDatabase::Access::read_write);
  REQUIRE(database.has_value());
  REQUIRE(database->run(statements).has_value());
}

// The rows of a rank that has ended: target 1 in step 0.
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

TEST_CASE("a tensor's shape holds until the step before the next one") {
  const TemporaryDirectory output;
  const auto file = written_database(output);
  change(file,
         "DELETE FROM target_tensors;"
         "INSERT INTO target_tensors VALUES (4, 1, 0, 3, '[3]', 'a'), (4, 1, 0, 5, '[5]', 'b'), "
         "(4, 1, 1, 4, '[4]', 'c'), (5, 1, 0, 4, '[4]', 'c')");
  auto database = RankDatabase::open(file);
  REQUIRE(database.has_value());
  auto notes = database->tensors(4, 0);
  REQUIRE(notes.has_value());
  const auto text_at = [&](std::int64_t target, std::int64_t step) {
    const auto note = notes->at(target, step);
    REQUIRE(note.has_value());
    const auto limit = [](std::int64_t number) {
      return number < 0 || number > 99 ? std::string() : std::to_string(number);
    };
    return limit(note->first_step) + "-" + limit(note->last_step) + " " + note->shape + note->dtype;
  };
  CHECK(text_at(1, 2) == "-2 ");
  CHECK(text_at(1, 3) == "3-4 [3]a");
  CHECK(text_at(1, 4) == "3-4 [3]a");
  CHECK(text_at(1, 9) == "5- [5]b");
  CHECK(text_at(2, 9) == "- ");
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

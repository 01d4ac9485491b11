// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/query_database.h"

#include <chrono>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/convert/rank_run.h"
#include "tools/convert/rank_database.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

namespace fs = std::filesystem;

fs::path make_run(const fs::path& output_dir, const std::string& name) {
  fs::create_directories(output_dir / name);
  write_text(output_dir / name / "monitor_metrics.db", "x");
  return output_dir / name;
}

std::string error_of(const fs::path& place, const std::string& run_id = "") {
  const auto found = find_rank_files({place}, run_id);
  REQUIRE_FALSE(found);
  return found.error();
}

TEST_CASE("an output directory gives the databases of all ranks of its newest run") {
  const TemporaryDirectory scratch;
  make_run(scratch.path(), "Nov24_08-30-12-rank0-11111111");
  for (const char* const rank : {"10", "2", "0"})
    make_run(scratch.path(), "Nov24_08-30-12-rank" + std::string(rank) + "-22222222");
  fs::last_write_time(scratch / "Nov24_08-30-12-rank0-11111111/monitor_metrics.db",
                      fs::file_time_type::clock::now() - std::chrono::hours(1));
  fs::create_directories(scratch / "Nov24_08-30-12-rank5-22222222");  // no database in it
  make_run(scratch.path(), "another");
  const auto found = find_rank_files({scratch.path()}, "");
  REQUIRE(found);
  REQUIRE(found->runs.size() == 1);
  CHECK(found->runs[0].run_id == "22222222");
  CHECK(found->runs[0].known == 2);
  REQUIRE(found->files.size() == 3);
  CHECK(found->files[0].rank == 0);
  CHECK(found->files[1].rank == 2);
  CHECK(found->files[2].rank == 10);
  CHECK(found->files[2].path == scratch / "Nov24_08-30-12-rank10-22222222/monitor_metrics.db");
  const auto older = find_rank_files({scratch.path()}, "11111111");
  REQUIRE(older);
  CHECK(older->files.size() == 1);
}

TEST_CASE("the runs of each output directory are counted apart") {
  const TemporaryDirectory one, other;
  make_run(one.path(), "Nov24_08-30-12-rank0-11111111");
  make_run(other.path(), "Nov24_08-30-12-rank1-22222222");
  const auto found = find_rank_files({one.path(), other.path()}, "");
  REQUIRE(found);
  CHECK(found->files.size() == 2);
  REQUIRE(found->runs.size() == 2);
  for (const ChosenRun& run : found->runs) CHECK(run.known == 1);
  CHECK(found->runs[1].output_dir == other.path());
}

TEST_CASE("a run directory and a database file are places too") {
  const TemporaryDirectory scratch;
  const fs::path run = make_run(scratch.path(), "Nov24_08-30-12-rank3-22222222");
  for (const fs::path& place : {run, fs::path(run.string() + "/"), run / "monitor_metrics.db"}) {
    const auto found = find_rank_files({place}, "");
    REQUIRE(found);
    REQUIRE(found->files.size() == 1);
    CHECK(found->files[0].rank == 3);
    CHECK(found->files[0].run_id == "22222222");
  }
}

TEST_CASE("a run directory that was renamed by a word before its name keeps its rank") {
  const TemporaryDirectory scratch;
  const auto found = find_rank_files({make_run(scratch.path(), "good-Nov24_08-30-12-rank3-22222222")}, "");
  REQUIRE(found);
  REQUIRE(found->files.size() == 1);
  CHECK(found->files[0].rank == 3);
  CHECK(found->files[0].run_id == "22222222");
}

TEST_CASE("of a database in a directory with another name rank and run are unknown") {
  const TemporaryDirectory scratch;
  for (const char* const name : {"Nov24_08-30-12-rank3-2222222", "rank3-22222222", "Nov24_08-30-12_csv2db"}) {
    const auto found = find_rank_files({make_run(scratch.path(), name)}, "");
    REQUIRE(found);
    REQUIRE(found->files.size() == 1);
    CHECK(found->files[0].rank == -1);
    CHECK(found->files[0].run_id.empty());
  }
}

TEST_CASE("an error names the place and what was expected there") {
  const TemporaryDirectory scratch;
  CHECK(error_of(scratch / "none") == (scratch / "none").string() + ": No such file or directory");
  CHECK(error_of(scratch.path()).find(scratch.path().string() + ": found no monitor_metrics.db here") == 0);
  make_run(scratch.path(), "Nov24_08-30-12-rank0-11111111");
  CHECK(error_of(scratch.path(), "33333333") ==
        scratch.path().string() + ": found no run 33333333; expected one of 11111111");
}

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

// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/rows/runs.h"

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using Lines = std::vector<std::string>;

// "ID: RANK,RANK" for each run.
Lines grouped(const Lines& directories, const Lines& run_files = {}) {
  const TemporaryDirectory output;
  for (const std::string& name : directories) std::filesystem::create_directory(output / name);
  for (const std::string& id : run_files)
    write_text(output / ("run-" + id + ".json"),
               R"({"format": 1, "started": "2026-11-24T12:04:37.120+01:00"})");
  Problems problems;
  Lines lines;
  const auto runs = runs_in(output.path(), problems);
  REQUIRE(runs);
  for (const Run& run : *runs) {
    lines.push_back(run.id + ":");
    for (const RankDirectory& rank : run.ranks) lines.back() += " " + std::to_string(rank.rank);
  }
  CHECK(problems.count() == 0);
  return lines;
}

TEST_CASE("directories of gradmon with the same id are one run and the newest run is the last") {
  CHECK(grouped({"Nov24_12-04-37-rank0-bbbbbbbb", "Nov24_12-04-37-rank10-bbbbbbbb",
                 "Nov24_12-04-37-rank2-bbbbbbbb", "Nov24_11-00-00-rank0-aaaaaaaa",
                 "Nov24_11-00-00-rank1-aaaaaaaa"}) == Lines{"aaaaaaaa: 0 1", "bbbbbbbb: 0 2 10"});
}

TEST_CASE("directories of msprobe belong together until a rank comes again") {
  CHECK(grouped({"Nov24_12-00-00-rank0-00000001", "Nov24_12-00-02-rank1-00000002",
                 "Nov24_12-00-01-rank2-00000003", "Nov24_12-05-00-rank0-00000004",
                 "Nov24_12-05-00-rank1-00000005"}) == Lines{"00000001: 0 1 2", "00000004: 0 1"});
  CHECK(grouped({"Nov24_12-00-00-rank0-00000001", "Nov24_13-00-00-rank1-00000002"}) ==
        Lines{"00000001: 0", "00000002: 1"});
}

TEST_CASE("a run with a run file of its own is not joined with directories of msprobe") {
  CHECK(grouped({"Nov24_12-00-00-rank0-00000001", "Nov24_12-00-01-rank1-00000002"}, {"00000002"}) ==
        Lines{"00000001: 0", "00000002: 1"});
}

TEST_CASE("January comes after December") {
  CHECK(grouped({"Jan01_00-10-00-rank0-bbbbbbbb", "Dec31_23-50-00-rank0-aaaaaaaa"}) ==
        Lines{"aaaaaaaa: 0", "bbbbbbbb: 0"});
  CHECK(grouped({"Jan01_00-00-01-rank1-bbbbbbbb", "Dec31_23-59-59-rank0-aaaaaaaa"}) ==
        Lines{"aaaaaaaa: 0 1"});
}

TEST_CASE("the directory of a rank is a run although it has no CSV file") {
  const TemporaryDirectory output;
  const auto directory = output / "Nov24_12-04-37-rank3-bbbbbbbb";
  std::filesystem::create_directories(directory / "tensorboard");
  Problems problems;
  const auto run = find_run(directory, "", problems);
  REQUIRE(run);
  CHECK(run->ranks.front().rank == 3);
}

TEST_CASE(
    "a run is found by its output directory and by its id and by a rank's directory and by its run file") {
  const TemporaryDirectory output;
  for (const char* name :
       {"Nov24_12-04-37-rank0-bbbbbbbb", "Nov24_12-04-37-rank1-bbbbbbbb", "Nov24_11-00-00-rank0-aaaaaaaa"})
    std::filesystem::create_directory(output / name);
  write_text(output / "Nov24_12-04-37-rank1-bbbbbbbb/actv_0-0.csv", "name,step\n");
  write_text(output / "run-aaaaaaaa.json", R"({"format": 1, "started": "2026-11-24T11:00:00.120+01:00"})");
  Problems problems;
  CHECK(find_run(output.path(), "", problems)->id == "bbbbbbbb");
  CHECK(find_run(output.path().string() + "/", "", problems)->id == "bbbbbbbb");
  CHECK(find_run(output.path(), "aaaaaaaa", problems)->started == "2026-11-24T11:00:00.120+01:00");
  CHECK(find_run(output / "run-aaaaaaaa.json", "", problems)->id == "aaaaaaaa");
  const auto one = find_run(output / "Nov24_12-04-37-rank1-bbbbbbbb", "", problems);
  REQUIRE(one);
  CHECK(one->ranks.size() == 1);
  CHECK(one->ranks.front().rank == 1);
  CHECK(problems.count() == 0);
}

TEST_CASE("the working directory can be a rank's directory") {
  const TemporaryDirectory output;
  const auto directory = output / "Nov24_12-04-37-rank3-bbbbbbbb";
  std::filesystem::create_directory(directory);
  write_text(directory / "actv_0-0.csv", "name,step\n");
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(directory);
  Problems problems;
  const auto run = find_run(".", "", problems);
  std::filesystem::current_path(before);
  REQUIRE(run);
  CHECK(run->id == "bbbbbbbb");
  CHECK(run->ranks.front().rank == 3);
  CHECK(directory_name(directory / "") == directory.filename());
}

TEST_CASE("what is no run is refused with what was expected") {
  const TemporaryDirectory output;
  Problems problems;
  CHECK(find_run(output / "missing", "", problems)
            .error()
            .find("No such file or directory; expected the output") != std::string::npos);
  CHECK(find_run(output.path(), "", problems).error().find("no directory of a rank") != std::string::npos);
  std::filesystem::create_directory(output / "Nov24_12-04-37-rank0-bbbbbbbb");
  CHECK(find_run(output.path(), "cccccccc", problems).error().find("no run cccccccc; there are: bbbbbbbb") !=
        std::string::npos);
}

TEST_CASE("a run file that cannot be used is a problem and the names of the directories are used") {
  const TemporaryDirectory output;
  std::filesystem::create_directory(output / "Nov24_12-04-37-rank0-bbbbbbbb");
  write_text(output / "run-bbbbbbbb.json", R"({"format": 2})");
  Problems problems;
  CHECK(find_run(output.path(), "", problems)->started == "Nov24_12-04-37");
  CHECK(problems.count() == 1);
}

}  // namespace
}  // namespace gradmon

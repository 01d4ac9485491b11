// SPDX-License-Identifier: Apache-2.0
#include "runtime/collect/run_directory.h"

#include <sys/stat.h>

#include "tests/support/catch.h"
#include "tests/support/scoped_variable.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

// A directory with run directories of those names. Returns the name that is found; before one that is not
// there, "new ".
std::string found_among(const std::vector<std::string>& names, const TimeSpan& span, int rank = 0) {
  const TemporaryDirectory output;
  for (const std::string& name : names) fs::create_directories(output / name);
  const auto found = find_earlier_directory(output.path(), Rank{rank}, span);
  REQUIRE(found);
  return *found ? ((*found)->exists ? "" : "new ") + (*found)->path.filename().string() : "";
}

TEST_CASE("the newest directory of the rank between the two times is found") {
  const std::vector<std::string> names = {
      "Dec03_21-34-39-rank0-00000001", "Dec03_21-34-40-rank0-00000002", "Dec03_21-34-41-rank0-00000003",
      "Dec03_21-34-42-rank0-00000004", "Dec03_21-34-41-rank1-00000005", "Dec03_21-34-41-rank10-00000006",
      "Dec03_21-34-41-rank0-0000000",  "Dec03_21-34-41-rank0-0000000x", "anomaly_detected"};
  CHECK(found_among(names, {"Dec03_21-34-40", "Dec03_21-34-41"}) == "Dec03_21-34-41-rank0-00000003");
  CHECK(found_among(names, {"Dec03_21-34-40", "Dec03_21-34-40"}) == "Dec03_21-34-40-rank0-00000002");
  CHECK(found_among(names, {"Jan01_00-00-00", "Dec31_23-59-59"}) == "Dec03_21-34-42-rank0-00000004");
  CHECK(found_among(names, {"Jan01_00-00-00", "Dec31_23-59-59"}, 1) == "Dec03_21-34-41-rank1-00000005");
  CHECK(found_among(names, {"Dec03_21-34-43", "Dec03_21-34-50"}).empty());
  CHECK(found_among({}, {"Jan01_00-00-00", "Dec31_23-59-59"}).empty());
}

TEST_CASE("a rank without a directory has one in the newest run of any rank") {
  const std::vector<std::string> names = {"Dec03_21-34-39-rank0-00000001",  "Dec03_21-34-40-rank0-00000002",
                                          "Dec03_21-34-40-rank1-00000002",  "Dec03_21-34-39-rank3-00000001",
                                          "Dec03_21-34-42-rank00-00000004", "Dec03_21-34-42-rank-1-00000004"};
  const TimeSpan all{"Jan01_00-00-00", "Dec31_23-59-59"};
  CHECK(found_among(names, all, 2) == "new Dec03_21-34-40-rank2-00000002");
  CHECK(found_among(names, all, 3) == "Dec03_21-34-39-rank3-00000001");
  CHECK(found_among(names, {"Dec03_21-34-39", "Dec03_21-34-39"}, 1) == "new Dec03_21-34-39-rank1-00000001");
  CHECK(found_among(names, {"Dec03_21-34-41", "Dec03_21-34-43"}, 2).empty());
}

TEST_CASE("a span may go over the new year") {
  const std::vector<std::string> names = {"Dec31_23-00-00-rank0-00000001", "Jan01_01-00-00-rank0-00000002",
                                          "Jun01_01-00-00-rank0-00000003"};
  CHECK(found_among(names, {"Dec31_00-00-00", "Jan02_00-00-00"}) == "Jan01_01-00-00-rank0-00000002");
  CHECK(found_among(names, {"Dec31_00-00-00", "Jan01_00-00-00"}) == "Dec31_23-00-00-rank0-00000001");
}

TEST_CASE("of directories with the same time the one that was changed last is found") {
  const TemporaryDirectory output;
  for (const char* id : {"00000001", "00000002", "00000003"})
    fs::create_directories(output / (std::string("Dec03_21-34-40-rank0-") + id));
  const auto now = fs::file_time_type::clock::now();
  fs::last_write_time(output / "Dec03_21-34-40-rank0-00000001", now - std::chrono::hours(2));
  fs::last_write_time(output / "Dec03_21-34-40-rank0-00000002", now);
  fs::last_write_time(output / "Dec03_21-34-40-rank0-00000003", now - std::chrono::hours(1));
  const auto found = find_earlier_directory(output.path(), Rank{0}, {"Dec03_21-34-40", "Dec03_21-34-40"});
  CHECK(found.value().value().path.filename() == "Dec03_21-34-40-rank0-00000002");
}

TEST_CASE("what is no time stamp is named") {
  const auto found = find_earlier_directory(".", Rank{0}, {"Dec03_21-34-40", "yesterday"});
  CHECK(found.error() == "\"yesterday\" is no time stamp, such as \"Dec03_21-34-40\"");
}

TEST_CASE("a rank goes on in its earlier directory, and a rank without one beside those of the others") {
  const TemporaryDirectory output;
  fs::create_directories(output / "Dec03_21-34-40-rank0-00000001");
  const auto directory_of = [&](int rank, const TimeSpan& span) {
    RunDirectory run(output.path(), Rank{rank}, "launch", [] { return JobIdentity{"e", "0123abcd", 0}; });
    run.append_between(span);
    CHECK(run.appends());
    run.fix_name();
    CHECK(run.path().empty());
    return run.create(std::chrono::milliseconds{0}).filename().string();
  };
  const TimeSpan span{"Dec03_00-00-00", "Dec04_00-00-00"};
  CHECK(directory_of(0, span) == "Dec03_21-34-40-rank0-00000001");
  CHECK(directory_of(1, span) == "Dec03_21-34-40-rank1-00000001");
  CHECK(directory_of(1, {"Dec04_00-00-00", "Dec05_00-00-00"}).substr(14) == "-rank1-0123abcd");
  CHECK(directory_of(0, {"Dec03", "Dec04"}).substr(14) == "-rank0-0123abcd");
}

TEST_CASE("a directory whose name is fixed is not left for an earlier one") {
  const TemporaryDirectory output;
  fs::create_directories(output / "Dec03_21-34-40-rank0-00000001");
  RunDirectory run(output.path(), Rank{0}, "launch", [] { return JobIdentity{"e", "0123abcd", 0}; });
  run.fix_name();
  run.append_between({"Jan01_00-00-00", "Dec31_00-00-00"});
  CHECK_FALSE(run.appends());
  CHECK(run.create(std::chrono::milliseconds{0}).filename().string().substr(14) == "-rank0-0123abcd");
}

TEST_CASE("a rank's directory is named after the job's local start time and the job's id") {
  const JobIdentity job{"epoch", "0123abcd", 1'733'233'000'000};  // 2024-12-03 13:36:40 UTC
  {
    const ScopedVariable zone("TZ", "UTC-8");
    REQUIRE(run_directory_path("out", Rank{12}, job) == "out/Dec03_21-36-40-rank12-0123abcd");
  }
  const ScopedVariable zone("TZ", "UTC");
  REQUIRE(run_directory_path("out", Rank{0}, job) == "out/Dec03_13-36-40-rank0-0123abcd");
}

TEST_CASE("the directory is created once and with mode 0750") {
  const TemporaryDirectory directory;
  RunDirectory run(directory / "a/b", Rank{1}, "launch", [] { return JobIdentity{"e", "00000001", 0}; });
  REQUIRE(run.path().empty());
  const mode_t before = ::umask(022);
  const auto made = run.create(std::chrono::milliseconds{0});
  ::umask(before);
  REQUIRE(made == run.create(std::chrono::milliseconds{0}));
  REQUIRE(run.path() == made);
  struct stat status {};
  REQUIRE(stat(made.c_str(), &status) == 0);
  REQUIRE((status.st_mode & 0777U) == 0750);
}

TEST_CASE("without an answer from rank 0 the directory is named after the launch") {
  const TemporaryDirectory directory;
  RunDirectory run(directory.path(), Rank{1}, "launch", [] { return std::optional<JobIdentity>{}; });
  const std::string name = run.create(std::chrono::milliseconds{0}).filename().string();
  // printf launch | sha256sum
  REQUIRE(name.substr(name.size() - 15) == "-rank1-abfc412c");
}

TEST_CASE("the wait for rank 0 counts as progress") {
  const TemporaryDirectory directory;
  RunDirectory run(directory.path(), Rank{1}, "launch", [] { return std::optional<JobIdentity>{}; });
  int reports = 0;
  run.report_progress([&] { return ++reports > 0; });
  run.identity(std::chrono::milliseconds{100});
  CHECK(reports > 0);
}

TEST_CASE("a write that is tried again after a later one does not put the older content back") {
  std::string file;
  bool disk_is_full = true;
  ReplacingWrites writes;
  const auto write_of = [&](const std::string& text) {
    return writes.next([&, text]() -> tl::expected<void, std::string> {
      if (disk_is_full) return tl::unexpected<std::string>("full");
      file = text;
      return {};
    });
  };
  const auto first = write_of("first");
  const auto second = write_of("second");
  CHECK_FALSE(first());
  CHECK_FALSE(second());
  disk_is_full = false;
  CHECK(first());
  CHECK(file == "first");
  CHECK(second());
  CHECK(file == "second");
  CHECK(first());
  CHECK(file == "second");
}

}  // namespace
}  // namespace gradmon

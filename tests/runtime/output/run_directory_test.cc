// SPDX-License-Identifier: Apache-2.0
#include "runtime/output/run_directory.h"

#include <sys/stat.h>

#include "control/debian_version.h"
#include "tests/runtime/output/scoped_variable.h"
#include "tests/support/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

TEST_CASE("a rank's directory is named after the job's local start time and the job's id") {
  const JobIdentity job{"epoch", "0123abcd", 1'733'233'000'000};  // 2024-12-03 13:36:40 UTC
  {
    const ScopedVariable zone("TZ", "UTC-8");
    REQUIRE(run_directory_of("out", Rank{12}, job) == "out/Dec03_21-36-40-rank12-0123abcd");
  }
  const ScopedVariable zone("TZ", "UTC");
  REQUIRE(run_directory_of("out", Rank{0}, job) == "out/Dec03_13-36-40-rank0-0123abcd");
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

}  // namespace
}  // namespace gradmon

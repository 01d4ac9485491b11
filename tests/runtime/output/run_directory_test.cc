// SPDX-License-Identifier: Apache-2.0
#include "runtime/output/run_directory.h"

#include <sys/stat.h>

#include <cstdlib>
#include <ctime>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

TEST_CASE("a rank's directory carries the job's time in the local zone and the job's id") {
  setenv("TZ", "UTC-8", 1);
  tzset();
  const JobIdentity job{"epoch", "0123abcd", 1'733'233'000'000};  // 2024-12-03 13:36:40 UTC
  REQUIRE(run_directory_of("out", Rank{12}, job) == "out/Dec03_21-36-40-rank12-0123abcd");
  setenv("TZ", "UTC", 1);
  tzset();
  REQUIRE(run_directory_of("out", Rank{0}, job) == "out/Dec03_13-36-40-rank0-0123abcd");
}

TEST_CASE("the directory is made once and is closed to others") {
  const TemporaryDirectory directory;
  RunDirectory run(directory / "a/b", Rank{1}, "launch", [] { return JobIdentity{"e", "00000001", 0}; });
  REQUIRE(run.path().empty());
  const auto made = run.create(std::chrono::milliseconds{0});
  REQUIRE(made == run.create(std::chrono::milliseconds{0}));
  REQUIRE(run.path() == made);
  struct stat status {};
  REQUIRE(stat(made.c_str(), &status) == 0);
  REQUIRE((status.st_mode & 0777U) == 0750);
}

TEST_CASE("where rank 0 does not answer the launch names the directory") {
  const TemporaryDirectory directory;
  RunDirectory run(directory.path(), Rank{1}, "launch", [] { return std::optional<JobIdentity>{}; });
  const std::string name = run.create(std::chrono::milliseconds{0}).filename().string();
  // printf launch | sha256sum
  REQUIRE(name.substr(name.size() - 15) == "-rank1-abfc412c");
}

}  // namespace
}  // namespace gradmon

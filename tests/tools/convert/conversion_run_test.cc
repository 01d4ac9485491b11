// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/conversion_run.h"

#include <sys/wait.h>
#include <unistd.h>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {

TEST_CASE("progress shows share, rows, rate and the time left") {
  CHECK(progress_text(0, 0, 1000, 0) == "0 %, 0 rows");
  CHECK(progress_text(500, 5, 1000, 2) == "0 %, 500 rows, 250 rows/s");
  CHECK(progress_text(3'000'000, 250, 1000, 10) == "25 %, 3000000 rows, 300000 rows/s, 30 s left");
  CHECK(progress_text(40, 2000, 1000, 4) == "100 %, 40 rows, 10 rows/s, 0 s left");  // a file that grew
  CHECK(progress_text(0, 0, 0, 1) == "100 %, 0 rows, 0 rows/s, 0 s left");
}

namespace {

namespace fs = std::filesystem;

std::size_t entries(const fs::path& directory) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
}

TEST_CASE("an output is there after finish() and not before") {
  const TemporaryDirectory place;
  {
    auto output = UnfinishedOutput::begin(place / "sub/made");
    REQUIRE(output.has_value());
    write_text(output->path(), "all");
    CHECK_FALSE(fs::exists(place / "sub/made"));
    REQUIRE(output->finish().has_value());
    CHECK(read_text(place / "sub/made") == "all");
  }
  CHECK(entries(place / "sub") == 1);
}

TEST_CASE("an output that is not finished leaves nothing") {
  const TemporaryDirectory place;
  {
    auto output = UnfinishedOutput::begin(place / "made");
    REQUIRE(output.has_value());
    write_text(output->path(), "half");
  }
  CHECK(entries(place.path()) == 0);
}

TEST_CASE("a name that was taken meanwhile is not overwritten") {
  const TemporaryDirectory place;
  auto output = UnfinishedOutput::begin(place / "made");
  REQUIRE(output.has_value());
  write_text(output->path(), "mine");
  write_text(place / "made", "theirs");
  const auto finished = output->finish();
  REQUIRE_FALSE(finished.has_value());
  CHECK(finished.error().find("File exists") != std::string::npos);
  CHECK(read_text(place / "made") == "theirs");
}

TEST_CASE("an empty directory is replaced and any other is refused") {
  const TemporaryDirectory place;
  fs::create_directory(place / "empty");
  auto output = UnfinishedOutput::begin(place / "empty/");
  REQUIRE(output.has_value());
  fs::create_directory(output->path());
  write_text(output->path() / "row", "1");
  REQUIRE(output->finish().has_value());
  CHECK(read_text(place / "empty/row") == "1");
  CHECK(UnfinishedOutput::begin(place / "empty").error() ==
        (place / "empty").string() + " is there already; expected a new name or an empty directory");
}

TEST_CASE("an earlier file is replaced only if that is asked for") {
  const TemporaryDirectory place;
  write_text(place / "made", "old");
  CHECK(UnfinishedOutput::begin(place / "made").error() ==
        (place / "made").string() + " is there already; expected a new name or an empty directory");
  auto output = UnfinishedOutput::begin(place / "made", UnfinishedOutput::Earlier::file);
  REQUIRE(output.has_value());
  write_text(output->path(), "new");
  CHECK(read_text(place / "made") == "old");
  CHECK(output->finish().value() == 1);
  CHECK(read_text(place / "made") == "new");
  fs::create_directory(place / "directory");
  write_text(place / "directory/row", "1");
  CHECK(UnfinishedOutput::begin(place / "directory", UnfinishedOutput::Earlier::file).error() ==
        (place / "directory").string() +
            " is there already; expected a new name, an empty directory or a file");
  CHECK(UnfinishedOutput::begin(place / "made", UnfinishedOutput::Earlier::curves).error() ==
        (place / "made").string() + " is there already; expected a new name or a directory");
}

TEST_CASE("what a killed process has left is removed and what a living one makes is not") {
  const TemporaryDirectory place;
  int ready[2], end[2];
  REQUIRE(::pipe(ready) == 0);
  REQUIRE(::pipe(end) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto output = UnfinishedOutput::begin(place / "theirs");
    if (output) write_text(output->path(), "half");
    char byte = 0;
    const bool told = ::write(ready[1], "x", 1) == 1 && ::close(end[1]) == 0;
    ::_exit(told && ::read(end[0], &byte, 1) == 1 ? 0 : 1);
  }
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  { REQUIRE(UnfinishedOutput::begin(place / "mine").has_value()); }
  CHECK(entries(place.path()) == 1);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  CHECK(entries(place.path()) == 1);
  { REQUIRE(UnfinishedOutput::begin(place / "mine").has_value()); }
  CHECK(entries(place.path()) == 0);
  for (const int fd : {ready[0], ready[1], end[0], end[1]}) ::close(fd);
}

}  // namespace

}  // namespace gradmon

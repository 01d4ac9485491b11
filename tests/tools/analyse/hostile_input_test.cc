// SPDX-License-Identifier: Apache-2.0
// A thousand broken files: every command reads what is good in them and reports the rest.
#include <cmath>
#include <random>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/analyse/rank_writer.h"
#include "tests/tools/broken_text.h"
#include "tests/tools/run_command.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

constexpr int kFiles = 1000;

std::string good_text() {
  const TemporaryDirectory output;
  RankWriter writer(output.path(), 0);
  writer.write(
      0, {{Kind::actv, "fc1.input", 1.5}, {Kind::actv, "a,b", std::nan("")}, {Kind::actv, "two\nlines", 2}});
  return read_text(writer.directory() / "actv_0-0.csv");
}

TEST_CASE("a thousand truncated and mixed and empty and binary files break no command") {
  const TemporaryDirectory output;
  const auto directory = output / "Nov24_12-04-37-rank0-1a2b3c4d";
  std::filesystem::create_directory(directory);
  const std::string good = good_text();
  std::mt19937 random(17);
  for (int number = 0; number < kFiles; ++number)
    write_text(
        directory / ("actv_" + std::to_string(number % 37) + "-99.r" + std::to_string(number) + ".csv"),
        broken_text(number, good, random));
  write_text(output / "run-1a2b3c4d.json", "{\"format\": [[[");
  const std::string place = output.path().string();
  for (const auto& words :
       std::vector<std::vector<std::string>>{{"first", place},
                                             {"top", place},
                                             {"diff", place, place},
                                             {"plot", place, "-o", (output / "x.svg").string()}}) {
    CAPTURE(words);
    const CommandResult result = run_analyse(words);
    CHECK(result.code == kExitDone);
    CHECK(result.err.find(" more rows or files are left out") != std::string::npos);
    CHECK(result.err.find('\x1b') == std::string::npos);
    CHECK(result.out.find('\x1b') == std::string::npos);
  }
}

}  // namespace
}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// A thousand broken files: every command reads what is good in them and reports the rest.
#include <cmath>
#include <random>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/analyse/rank_writer.h"
#include "tests/tools/analyse/run_command.h"
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

// Another sort of broken text for each number.
std::string hostile_text(int number, const std::string& good, std::mt19937& random) {
  const auto below = [&](std::size_t count) { return static_cast<std::size_t>(random()) % count; };
  std::string text = good;
  switch (number % 10) {
    case 0:
      return text.substr(0, below(text.size() + 1));
    case 1:
      return text.substr(below(text.size()));
    case 2:
      for (int i = 0; i < 8; ++i) text[below(text.size())] = static_cast<char>(random());
      return text;
    case 3:
      for (char& c : text) c = static_cast<char>(random());
      return text;
    case 4:
      return std::string();
    case 5:
      return text + "name,step,max\nx,1,2\n" + text;
    case 6:
      return text.insert(below(text.size()), "\"");
    case 7:
      return text.insert(below(text.size()), std::string(below(70'000), number % 20 == 7 ? '\0' : ','));
    case 8:
      return "name,step,norm\n" + std::string(below(2'000'000), 'n');
    default:
      return text + "0," + std::string(5000, '\x1b') +
             ",1,0,1e999,0,[],\n0,x,18446744073709551615,0,1,0,,\n0,y,3,0,1,0,,\n";
  }
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
        hostile_text(number, good, random));
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

// SPDX-License-Identifier: Apache-2.0
// The CSV sink while its system calls fail, and when it is killed before each of them.
#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

#include "tests/support/catch.h"
#include "tests/support/scale.h"
#include "tests/support/temporary_directory.h"
#include "tests/whole/failpoints/failpoints.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using State = FailpointProcess::State;

constexpr std::size_t kRows = 2400;  // that failpoint-sink sends

// One run of failpoint-sink.
struct CsvRun {
  CsvRun(const std::string& form, const std::string& points) {
    const TemporaryDirectory directory;
    const fs::path out = directory / "out";
    fs::create_directory(out);
    FailpointProcess process({{test_program("failpoint-sink"), out.string(), form},
                              {},
                              out,
                              points,
                              directory / "calls",
                              directory / "printed"});
    state = process.wait();
    code = process.exit_code();
    calls = read_lines(directory / "calls");
    const auto printed = read_lines(directory / "printed");
    if (!printed.empty()) std::istringstream(printed.back()) >> sent >> written >> lost;
    for (const auto& entry : fs::directory_iterator(out)) {
      if (entry.path().extension() == ".csv") read(entry.path());
    }
  }

  void read(const fs::path& file) {
    const std::string text = read_text(file);
    if (text.empty() || text.back() != '\n') damage += file.string() + " ends amid a row\n";
    const auto lines = read_lines(file);
    if (lines.empty() || lines[0].rfind("vpp_stage,name,step,", 0) != 0)
      damage += file.string() + " has no header\n";
    for (std::size_t i = 1; i < lines.size(); ++i) {
      if (lines[i].rfind("0,layers.", 0) != 0) damage += "row " + lines[i] + "\n";
      if (!rows.insert(file.filename().string() + ":" + lines[i]).second)
        damage += "twice " + lines[i] + "\n";
    }
  }

  State state = State::crashed;
  int code = -1;
  std::size_t sent = 0, written = 0, lost = 0;
  std::vector<std::string> calls;
  std::set<std::string> rows;  // on disk
  std::string damage;          // "": the files have headers and whole rows, each once
};

// The descriptor cannot be closed, and later calls cannot take the rows back.
bool closes_for_good(const std::string& call, const std::string& how_long) {
  return call.find(" close:") != std::string::npos && how_long == "+ ";
}

}  // namespace

TEST_CASE("whichever call fails, rows sent are rows in the CSV files and rows counted as lost") {
  const char* const codes[] = {"EIO", "ENOSPC", "EROFS", "EACCES", "EMFILE", "ESTALE", "EINTR"};
  for (const std::string form : {"csv", "resumed-csv"}) {
    const CsvRun sound(form, "");
    REQUIRE(sound.code == 0);
    REQUIRE(sound.sent == kRows);
    REQUIRE(sound.rows.size() == kRows);
    REQUIRE(sound.calls.size() > 100);
    std::size_t with_loss = 0;
    for (std::size_t call = 1; call <= sound.calls.size(); call += full_scale() ? 1 : 7) {
      for (const char* const how_long : {" ", "+ "}) {
        const std::string point = std::to_string(call) + how_long + codes[call % 7];
        if (point.find("+ EINTR") != std::string::npos)
          continue;  // A call that is interrupted for ever hangs.
        const CsvRun out(form, point);
        CAPTURE(form, point, sound.calls[call - 1], out.written, out.lost);
        REQUIRE(out.code == 0);
        REQUIRE(out.sent == kRows);
        REQUIRE(out.sent == out.written + out.lost);
        REQUIRE(out.damage == "");
        if (closes_for_good(sound.calls[call - 1], how_long)) {
          REQUIRE(out.rows.size() >= out.written);
        } else {
          REQUIRE(out.rows.size() == out.written);
        }
        with_loss += out.lost > 0 ? 1 : 0;
      }
    }
    CHECK(with_loss > 10);
  }
}

TEST_CASE("a sink killed before any of its system calls leaves whole rows under whole headers") {
  const std::size_t calls = CsvRun("csv", "").calls.size();
  for (std::size_t call = 1; call <= calls; call += full_scale() ? 1 : 7) {
    const CsvRun killed("csv", std::to_string(call) + " kill");
    CAPTURE(call, killed.damage);
    CHECK(killed.state == State::killed);
    CHECK(killed.damage == "");
  }
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// A run whose calls on its event files fail, a different call in each run, once or for good.
#include <sstream>

#include "tests/support/catch.h"
#include "tests/support/scale.h"
#include "tests/support/temporary_directory.h"
#include "tests/whole/failpoints/failpoints.h"
#include "tests/writers/sinks/event_reader.h"

namespace gradmon {
namespace {

struct Outcome {
  int code = -1;
  std::size_t sent = 0, written = 0, lost = 0;
  std::size_t found = 0;  // rows in whole records of the event files
  std::vector<std::string> calls;
};

// A row is an event with numbers; an event of a scalar over samples belongs to the row before.
std::size_t rows_in(const std::filesystem::path& directory) {
  std::size_t rows = 0;
  for (const auto& file : event_files_in(directory)) {
    for (const auto& event : parse_events(read_text(file)).events) {
      const bool numbers = event.summary().value_size() > 0 && event.summary().value(0).has_simple_value();
      if (!numbers) continue;
      const std::string& tag = event.summary().value(0).tag();
      rows += tag.find("-vs-samples") == std::string::npos ? 1 : 0;
    }
  }
  return rows;
}

Outcome write_run(const std::string& points) {
  const TemporaryDirectory directory;
  const auto run = directory / "run";
  std::filesystem::create_directory(run);
  FailpointProcess process({{test_program("tensorboard-sample-run"), run.string(), "20000"},
                            {},
                            run,
                            points,
                            directory / "calls",
                            directory / "log"});
  process.wait();
  Outcome out;
  out.code = process.exit_code();
  const auto lines = read_lines(directory / "log");
  if (!lines.empty()) std::istringstream(lines.back()) >> out.sent >> out.written >> out.lost;
  out.found = rows_in(run / "tensorboard");
  out.calls = read_lines(directory / "calls");
  return out;
}

bool closes_for_good(const std::string& call, const std::string& how_long) {
  return call.find(" close:") != std::string::npos && how_long == "+ ";
}

TEST_CASE("whichever call fails, rows sent are rows in the event files and rows counted as lost") {
  const Outcome sound = write_run("");
  REQUIRE(sound.code == 0);
  REQUIRE(sound.sent > 300);
  REQUIRE(sound.lost == 0);
  REQUIRE(sound.found == sound.sent);
  REQUIRE(sound.calls.size() > 60);
  const std::size_t stride = full_scale() ? 1 : 7;
  const char* const codes[] = {"EIO", "ENOSPC", "EROFS", "EACCES", "EMFILE", "ESTALE", "EINTR"};
  std::size_t with_loss = 0;
  for (std::size_t call = 1; call <= sound.calls.size(); call += stride) {
    for (const char* const how_long : {" ", "+ "}) {
      const std::string point = std::to_string(call) + how_long + codes[call % 7];
      if (point.find("+ EINTR") != std::string::npos) continue;  // A call that is interrupted for ever hangs.
      const Outcome out = write_run(point);
      CAPTURE(point, sound.calls[call - 1], out.written, out.lost);
      REQUIRE(out.code == 0);
      REQUIRE(out.sent == sound.sent);
      REQUIRE(out.sent == out.written + out.lost);
      // Rows in a file that cannot be closed and then not be cut off count as lost.
      if (closes_for_good(sound.calls[call - 1], how_long)) {
        REQUIRE(out.found >= out.written);
      } else {
        REQUIRE(out.found == out.written);
      }
      with_loss += out.lost > 0 ? 1 : 0;
    }
  }
  CHECK(with_loss > 0);
}

}  // namespace
}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// A real training whose calls on the files of its job fail, a different call in each run,
// once or for good. Training ends with the same parameters, the config file is whole, and
// the log reports missing rows and a missing write-back. Once for each sink. (For calls of
// the hub: write_back_kill_test.)
#include <algorithm>
#include <cstring>

#include "tests/support/catch.h"
#include "tests/support/scale.h"
#include "tests/support/temporary_directory.h"
#include "tests/whole/failpoints/failpoints.h"
#include "tests/writers/sinks/event_reader.h"
#include "tests/writers/sinks/metrics_database.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

std::string config(const char* on, const std::string& format) {
  return std::string("{\"dynamic_on\": ") + on +
         R"(, "collect_times": 3, "wg_distribution": true, "format": ")" + format + "\"}";
}

struct Outcome {
  int code = -1;
  std::string parameters;
  std::string config;
  std::string log;
  std::size_t rows = 0;
  std::vector<std::string> calls;
};

bool hub_has_gone(const fs::path& run) {
  std::error_code none;
  for (fs::recursive_directory_iterator i(run, none), end; i != end; i.increment(none)) {
    if (i->path().filename() == "hub.sock") return false;
  }
  return true;
}

// The rows that a sink has left below a directory.
std::size_t rows_below(const fs::path& directory) {
  std::size_t rows = 0;
  std::error_code none;
  for (fs::recursive_directory_iterator i(directory, none), end; i != end; i.increment(none)) {
    if (i->path().extension() == ".csv") rows += read_lines(i->path()).size();
    if (i->path().filename() == kMetricsFileName) rows += stored_rows(i->path());
    if (i->path().filename() == "tensorboard") rows += points_in(i->path()).size();
  }
  return rows;
}

// A sink's error has the text of the system, or SQLite's own. Where a directory could not be made, the sink
// cannot make the one below it.
bool reports(const std::string& log, int error) {
  const char* const of_system = std::strerror(error);
  for (const char* const text :
       {of_system, "could not be written back: ", "disk I/O error", "database or disk is full",
        "unable to open database file", "cannot make "}) {
    if (log.find(text) != std::string::npos) return true;
  }
  return false;
}

Outcome train(const std::string& format, const std::string& points) {
  const TemporaryDirectory directory;
  const fs::path job = directory / "job";
  fs::create_directory(job);
  fs::create_directory(job / "run");
  fs::permissions(job / "run", fs::perms::owner_all);
  write_text(job / "c.json", config("true", format));
  FailpointProcess process(
      {{test_program("gradmon-train"), "--config", (job / "c.json").string(), "--threads", "1", "--layers",
        "1", "--width", "8", "--context", "8", "--batch", "1", "--steps", "400", "--step-ms", "5", "--save",
        (directory / "parameters").string()},
       {{"DYNAMIC_MONITOR", "True"},
        {"MONITOR_OUTPUT_DIR", (job / "out").string()},
        {"XDG_RUNTIME_DIR", (job / "run").string()}},
       job,
       points,
       directory / "calls",
       directory / "log"});
  process.wait();
  Outcome out;
  out.code = process.exit_code();
  out.parameters = read_text(directory / "parameters");
  INFO(points);
  CHECK(eventually([&] { return hub_has_gone(job / "run"); }));  // It ends a little later than the rank.
  out.config = read_text(job / "c.json");
  out.log = read_text(directory / "log");
  out.calls = read_lines(directory / "calls");
  out.rows = rows_below(job / "out");
  return out;
}

}  // namespace

namespace {

// `quick`: how many of the calls fail in the quick tier.
void check_each_call(const std::string& format, std::size_t quick) {
  const Outcome sound = train(format, "");
  REQUIRE(sound.code == 0);
  REQUIRE(sound.parameters.size() > 1000);
  REQUIRE(sound.config == config("false", format));
  REQUIRE(sound.rows > 50);
  REQUIRE(sound.calls.size() > 20);
  const std::size_t stride = full_scale() ? 1 : std::max<std::size_t>(1, sound.calls.size() / quick);
  const char* const codes[] = {"EIO", "ENOSPC", "EROFS", "EACCES", "EMFILE", "ESTALE"};
  const int numbers[] = {EIO, ENOSPC, EROFS, EACCES, EMFILE, ESTALE};
  int runs = 0;
  int without_failure = 0;
  for (std::size_t n = 1; n + stride / 2 <= sound.calls.size(); n += stride) {
    for (const char* how_long : {" ", "+ "}) {
      const std::size_t which = n % 6;
      const std::string point = std::to_string(n) + how_long + codes[which];
      const Outcome out = train(format, point);
      CAPTURE(format, point, sound.calls[n - 1], out.log);
      REQUIRE(out.code == 0);
      REQUIRE(out.parameters == sound.parameters);
      const bool off = out.config == config("false", format);
      REQUIRE((off || out.config == config("true", format)));
      if (!off || out.rows != sound.rows) REQUIRE(reports(out.log, numbers[which]));
      const bool failed = std::any_of(out.calls.begin(), out.calls.end(), [](const std::string& call) {
        return call.find(" failed") != std::string::npos;
      });
      runs += 1;
      without_failure += failed ? 0 : 1;
    }
  }
  // The number of calls varies a little: the last ones are not in every run.
  CAPTURE(runs, without_failure);
  REQUIRE(without_failure <= runs / 4);
}

}  // namespace

TEST_CASE(
    "training computes the same bits whichever call of a CSV job fails and the log reports missing rows") {
  check_each_call("csv", 4);
}

TEST_CASE("training computes the same bits whichever call of a TensorBoard job fails") {
  check_each_call("tensorboard", 2);
}

TEST_CASE("training computes the same bits whichever call of an SQLite job fails") {
  check_each_call("sqlite", 2);
}

}  // namespace gradmon

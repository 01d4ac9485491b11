// SPDX-License-Identifier: Apache-2.0
// A conversion that is killed, interrupted or refused a system call, a different one in each run: the output
// is whole or not there.
#include <signal.h>

#include <algorithm>
#include <optional>

#include "control/debian_version.h"
#include "tests/tools/convert/sample_job.h"
#include "tests/whole/failpoints/failpoints.h"
#include "tests/writers/sinks/sqlite/metrics_database.h"
#include "tests/writers/sinks/tensorboard/event_reader.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using State = FailpointProcess::State;

// A conversion of a small job into PLACE/x, with failpoints on its calls below PLACE.
class Attempt {
 public:
  Attempt(const SampleJob& job, const std::string& command, const fs::path& place, const std::string& points)
      : process_({{test_program("gradmonctl"), "convert", command, "--monitor-path", job.path().string(),
                   "--output-dirpath", (place / "x").string()},
                  {},
                  place,
                  points,
                  scratch_ / "calls",
                  scratch_ / "log"}) {}

  FailpointProcess& process() { return process_; }
  std::vector<std::string> calls() const { return read_lines(scratch_ / "calls"); }
  std::string log() const { return read_text(scratch_ / "log"); }

 private:
  TemporaryDirectory scratch_;
  FailpointProcess process_;
};

// What is unfinished in a directory. A process that is killed before it has locked its new directory leaves
// it empty, for a minute at least.
std::size_t unfinished_in(const fs::path& place) {
  std::size_t count = 0;
  for (const auto& entry : fs::directory_iterator(place))
    count += entry.path().filename().string().front() == '.' && !fs::is_empty(entry.path()) ? 1 : 0;
  return count;
}

// Whether the output has all rows; nullopt if it is not there.
std::optional<bool> whole(const std::string& command, const fs::path& output) {
  if (!fs::exists(output)) return std::nullopt;
  if (command == "csv2db")
    return integrity_error(output / "monitor_metrics.db") == "" &&
           stored_rows(output / "monitor_metrics.db") == 11;
  std::size_t points = 0;
  for (const auto& entry : fs::recursive_directory_iterator(output)) {
    if (entry.is_directory()) points += points_in(entry.path()).size();
  }
  return points == 29;
}

}  // namespace

TEST_CASE("killed before any of its calls, a conversion leaves nothing or the whole and can be made again") {
  const SampleJob job;
  for (const std::string command : {"csv2tb", "csv2db"}) {
    std::size_t calls = 0;
    {
      const TemporaryDirectory place;
      Attempt sound(job, command, place.path(), "");
      REQUIRE(sound.process().wait() == State::exited);
      REQUIRE(sound.process().exit_code() == 0);
      REQUIRE(whole(command, place / "x") == true);
      calls = sound.calls().size();
    }
    REQUIRE(calls > 15);
    const std::size_t stride = full_scale() ? 1 : calls / 12 + 1;
    for (std::size_t call = 1; call <= calls; call += stride) {
      const TemporaryDirectory place;
      CAPTURE(command, call);
      Attempt killed(job, command, place.path(), std::to_string(call) + " kill");
      REQUIRE(killed.process().wait() == State::killed);
      CHECK(whole(command, place / "x").value_or(true));
      if (fs::exists(place / "x")) continue;
      Attempt again(job, command, place.path(), "");
      REQUIRE(again.process().wait() == State::exited);
      CHECK(whole(command, place / "x") == true);
      CHECK(unfinished_in(place.path()) == 0);
    }
  }
}

TEST_CASE(
    "interrupted at any of its calls, a conversion leaves nothing or the whole, and dies of the signal") {
  const SampleJob job;
  for (const std::string command : {"csv2tb", "csv2db"}) {
    for (const int signal : {SIGINT, SIGTERM}) {
      for (std::size_t call = 2; call < (full_scale() ? 60U : 16U); call += full_scale() ? 1 : 5) {
        const TemporaryDirectory place;
        CAPTURE(command, call, signal);
        Attempt attempt(job, command, place.path(), std::to_string(call) + " stop");
        if (attempt.process().wait() != State::stopped) break;  // it has fewer calls
        // Sent to the stopped process: it is there before the process goes on.
        REQUIRE(::kill(attempt.process().pid(), signal) == 0);
        attempt.process().resume();
        attempt.process().wait();
        CHECK(unfinished_in(place.path()) == 0);
        const auto found = whole(command, place / "x");
        CHECK(found.value_or(true));
        const int code = attempt.process().exit_code();
        CHECK(code == (found ? (code == 0 ? 0 : 128 + signal) : 128 + signal));
        if (!found) CHECK(attempt.log().find("interrupted; nothing was written") != std::string::npos);
      }
    }
  }
}

TEST_CASE("whichever call fails, a conversion names the cause and leaves nothing, or makes the whole") {
  const SampleJob job;
  for (const std::string command : {"csv2tb", "csv2db"}) {
    std::size_t failed = 0;
    for (std::size_t call = 1; call < (full_scale() ? 80U : 40U); call += full_scale() ? 1 : 5) {
      for (const char* code : {" ENOSPC", "+ EIO"}) {
        const TemporaryDirectory place;
        CAPTURE(command, call, code);
        Attempt attempt(job, command, place.path(), std::to_string(call) + code);
        REQUIRE(attempt.process().wait() == State::exited);
        const auto found = whole(command, place / "x");
        CHECK(found.value_or(true));
        CHECK(found.has_value() == (attempt.process().exit_code() == 0));
        if (found) continue;
        ++failed;
        CHECK(attempt.log().find("gradmonctl: ") != std::string::npos);
      }
    }
    CHECK(failed > 3);
  }
}

}  // namespace gradmon

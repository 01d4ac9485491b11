// SPDX-License-Identifier: Apache-2.0
// A conversion that is killed, interrupted or refused a system call, a different one in each run: the output
// is whole or not there.
#include <signal.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "control/debian_version.h"
#include "tests/support/scale.h"
#include "tests/tools/convert/rank_run.h"
#include "tests/tools/convert/sample_job.h"
#include "tests/whole/failpoints/failpoints.h"
#include "tests/writers/sinks/event_reader.h"
#include "tests/writers/sinks/metrics_database.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using State = FailpointProcess::State;

constexpr const char* kCommands[] = {"csv2tb", "csv2db", "merge"};
constexpr std::size_t kRowsInCsv = 11;  // of the sample job
constexpr std::size_t kStepsInDatabase = 3;

// The sample job; for merge, with a rank that has written a database: one row in each step.
struct Input {
  explicit Input(const std::string& command) {
    if (command != "merge") return;
    RankWriter rank5(job.path(), 5);
    for (std::size_t step = 0; step < kStepsInDatabase; ++step)
      REQUIRE(rank5.write(static_cast<std::int64_t>(step), std::vector<std::string>{"fc1.weight"}));
  }
  const SampleJob job;
};

std::vector<std::string> command_line(const Input& input, const std::string& command,
                                      const fs::path& output) {
  const std::string from = input.job.path().string();
  if (command == "merge")
    return {test_program("gradmonctl"), "convert", command, from, "-o", output.string()};
  return {test_program("gradmonctl"), "convert",      command, "--monitor-path", from,
          "--output-dirpath",         output.string()};
}

// A conversion of a small job into PLACE/x, with failpoints on its calls below PLACE.
class Attempt {
 public:
  Attempt(const Input& input, const std::string& command, const fs::path& place, const std::string& points)
      : process_({command_line(input, command, place / "x"),
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

// True if the output has all rows; nullopt if it is not there.
std::optional<bool> whole(const std::string& command, const fs::path& output) {
  if (!fs::exists(output)) return std::nullopt;
  if (command != "csv2tb") {
    const fs::path database = command == "merge" ? output : output / "monitor_metrics.db";
    return integrity_error(database) == "" &&
           stored_rows(database) == kRowsInCsv + (command == "merge" ? kStepsInDatabase : 0);
  }
  std::size_t points = 0;
  for (const auto& entry : fs::recursive_directory_iterator(output)) {
    if (entry.is_directory()) points += points_in(entry.path()).size();
  }
  return points == 29;
}

// What an earlier conversion has left at PLACE/x: curves of two kinds, or a database of two rows.
void make_earlier_output(const std::string& command, const fs::path& place) {
  const TemporaryDirectory one_row;
  const fs::path directory = one_row / SampleJob::kRank0;
  fs::create_directories(directory);
  for (const char* const file : {"actv_0-0.csv", "grad_reduced_0-0.csv"})
    write_text(directory / file, "vpp_stage,name,step,norm,shape,dtype\n0,old,0,1,[2],\n");
  FailpointProcess process({{test_program("gradmonctl"), "convert", command, "--monitor-path",
                             one_row.path().string(), "--output-dirpath", (place / "x").string()},
                            {},
                            one_row.path(),
                            "",
                            one_row / "calls",
                            one_row / "log"});
  process.wait();
  REQUIRE(process.exit_code() == 0);
}

// True if each directory of curves, or the database, is the earlier one or the new one.
bool old_or_new(const std::string& command, const fs::path& output) {
  if (command == "csv2db") {
    const fs::path database = output / "monitor_metrics.db";
    return integrity_error(database) == "" && (stored_rows(database) == 2 || whole(command, output) == true);
  }
  const std::map<std::string, std::set<std::size_t>> points = {{"actv", {1, 8}}, {"grad_reduced", {1, 14}}};
  for (const auto& [kind, expected] : points) {
    if (expected.count(points_in(output / "rank0" / kind).size()) == 0) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("killed or refused a call, a conversion leaves the earlier output or the new one") {
  for (const std::string command : {"csv2tb", "csv2db"}) {
    const Input job(command);
    std::size_t calls = 0;
    for (std::size_t call = 0; call <= calls; call += call == 0 || full_scale() ? 1 : calls / 12 + 1) {
      for (const char* const what : {" kill", " EIO", "+ ENOSPC"}) {
        const TemporaryDirectory place;
        make_earlier_output(command, place.path());
        Attempt attempt(job, command, place.path(), call == 0 ? "" : std::to_string(call) + what);
        const State state = attempt.process().wait();
        CAPTURE(command, call, what, attempt.log());
        CHECK(old_or_new(command, place / "x"));
        if (call == 0) calls = attempt.calls().size();
        if (call == 0) REQUIRE((state == State::exited && attempt.process().exit_code() == 0));
        if (attempt.process().exit_code() != 0) continue;
        CHECK(whole(command, place / "x") == true);
      }
    }
    REQUIRE(calls > 15);
  }
}

TEST_CASE("a file system that knows only the plain rename gets whole outputs, new and replaced") {
  for (const std::string command : kCommands) {
    const Input job(command);
    for (const bool earlier : {false, true}) {
      if (earlier && command == "merge") continue;  // It replaces nothing.
      const TemporaryDirectory place;
      if (earlier) make_earlier_output(command, place.path());
      Attempt attempt(job, command, place.path(), "renameat2:1+ EINVAL");
      CAPTURE(command, earlier);
      REQUIRE(attempt.process().wait() == State::exited);
      CHECK(attempt.process().exit_code() == 0);
      CHECK(whole(command, place / "x") == true);
      CHECK(unfinished_in(place.path()) == 0);
    }
  }
}

TEST_CASE("killed before any of its calls, a conversion leaves nothing or the whole and can be made again") {
  for (const std::string command : kCommands) {
    const Input job(command);
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
  for (const std::string command : kCommands) {
    const Input job(command);
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
  for (const std::string command : kCommands) {
    const Input job(command);
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

TEST_CASE("without memory csv2db ends with an error and does not wait for its readers") {
  if (GRADMON_SANITIZED) {
    WARN("skipped: a sanitizer needs more address space than the limit");
    return;
  }
  const TemporaryDirectory input, place, scratch;
  const fs::path directory = input / SampleJob::kRank0;
  fs::create_directories(directory);
  std::string rows = "name,step,norm\n";  // more than a reader can hand over before the writer takes some
  for (int step = 0; step < 40'000; ++step) rows += "a," + std::to_string(step) + ",1\n";
  write_text(directory / "grad_reduced_0-99999.csv", rows);
  write_text(directory / "scopes.json", "");
  fs::resize_file(directory / "scopes.json", 220 << 20);  // takes no room on the disk
  FailpointProcess process(
      {{"/bin/sh", "-c", "ulimit -v 200000; exec \"$@\"", "sh", test_program("gradmonctl"), "convert",
        "csv2db", "--monitor-path", input.path().string(), "--output-dirpath", (place / "x").string()},
       {},
       place.path(),
       "",
       scratch / "calls",
       scratch / "log"});
  CHECK(process.wait() == State::exited);
  CHECK(process.exit_code() == 1);
  CHECK(read_text(scratch / "log").find("cannot write the database: std::bad_alloc") != std::string::npos);
  CHECK_FALSE(fs::exists(place / "x"));
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// The SQLite sink while its system calls fail, and when it is killed before each of them.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/support/catch.h"
#include "tests/support/scale.h"
#include "tests/support/temporary_directory.h"
#include "tests/whole/failpoints/failpoints.h"
#include "tests/writers/sinks/metrics_database.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using State = FailpointProcess::State;

constexpr std::uint64_t kRowsOfStep = 120;
constexpr std::uint64_t kSteps = 20;

// One run of failpoint-sink.
class SqliteRun {
 public:
  SqliteRun(const fs::path& parent, const std::string& points) : directory_(parent / "job") {
    fs::remove_all(directory_);
    fs::create_directories(directory_ / "out");
    FailpointProcess process({{test_program("failpoint-sink"), out().string(), "sqlite"},
                              {},
                              out(),
                              points,
                              directory_ / "calls",
                              directory_ / "printed"});
    state_ = process.wait();
    code_ = process.exit_code();
    std::ifstream printed(directory_ / "printed");
    for (std::string line; std::getline(printed, line);) last_line_ = line;
  }

  // The number of its calls of one name.
  long calls_of(const std::string& name) const {
    const auto calls = read_lines(directory_ / "calls");
    return std::count_if(calls.begin(), calls.end(), [&](const std::string& call) {
      return call.find(" " + name + ":") != std::string::npos;
    });
  }
  // The line of its output that contains the text; "" if there is none, or more than one.
  std::string line_with(const std::string& text) const {
    std::string found;
    int count = 0;
    for (const std::string& line : read_lines(directory_ / "printed")) {
      if (line.find(text) == std::string::npos) continue;
      found = line;
      ++count;
    }
    return count == 1 ? found : "";
  }
  std::uint64_t written() const {
    std::uint64_t sent = 0;
    std::uint64_t written = 0;
    return std::sscanf(last_line_.c_str(), "%lu %lu", &sent, &written) == 2 ? written : 0;
  }
  std::size_t calls() const { return read_lines(directory_ / "calls").size(); }
  // The number of the last open() of the database itself; 0: there is none.
  std::size_t last_open() const {
    const auto calls = read_lines(directory_ / "calls");
    for (std::size_t n = calls.size(); n > 0; --n) {
      const std::string& call = calls[n - 1];
      if (call.find(" open:") != std::string::npos &&
          call.find(database().string()) + database().string().size() == call.size())
        return n;
    }
    return 0;
  }
  State state() const { return state_; }
  fs::path out() const { return directory_ / "out"; }
  fs::path database() const { return out() / kMetricsFileName; }

  // "" if the process has ended by itself, its counts add up and the database has the rows it counted as
  // written. `doubtful`: it may have one step more, whose commit failed, and which nobody could look at after
  // that.
  std::string wrong_counts(std::uint64_t doubtful = 0) const {
    std::uint64_t sent = 0;
    std::uint64_t written = 0;
    std::uint64_t lost = 0;
    if (state_ != State::exited || code_ != 0) return "ended with " + std::to_string(code_);
    if (std::sscanf(last_line_.c_str(), "%lu %lu %lu", &sent, &written, &lost) != 3)
      return "printed " + last_line_;
    if (sent != kSteps * kRowsOfStep || written + lost != sent) return "counted " + last_line_;
    const std::uint64_t stored = stored_rows_in(out());
    if (stored != written && stored != written + doubtful * kRowsOfStep)
      return std::to_string(stored) + " rows are stored; counted " + last_line_;
    return damage();
  }

  // "" if the database is whole or does not exist, and has only whole steps.
  std::string damage() const {
    if (!fs::exists(database())) return "";
    const std::string error = integrity_error(database());
    if (!error.empty()) return error;
    if (stored_rows(database()) == 0) return "";
    const TextRows steps = query_rows(database(), "SELECT DISTINCT count(*) FROM v_metrics GROUP BY step");
    return steps == TextRows{std::to_string(kRowsOfStep)} ? "" : "a step is not whole";
  }

 private:
  const fs::path directory_;
  State state_ = State::crashed;
  int code_ = -1;
  std::string last_line_;
};

fs::path memory_or_disk() {
  return fs::is_directory("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path();
}

// Runs the program with each point in turn: "{n} {what}", for all its calls or, in the quick tier, one in
// `stride`.
void fail_each_call(const std::string& what, int stride) {
  const TemporaryDirectory directory(memory_or_disk());
  const SqliteRun plain(directory.path(), "");
  REQUIRE(plain.wrong_counts() == "");
  const int calls = static_cast<int>(plain.calls());
  REQUIRE(calls > 200);
  REQUIRE(plain.calls_of("fdatasync") >= static_cast<long>(kSteps));  // flush() syncs the file
  for (int n = 1; n <= calls; n += full_scale() ? 1 : stride) {
    const SqliteRun run(directory.path(), std::to_string(n) + what);
    CAPTURE(n, what);
    CHECK(run.wrong_counts(what[0] == '+' ? 1 : 0) == "");
  }
}

TEST_CASE("every system call of the sink fails once, and the counts are exact") {
  fail_each_call(" EIO", 23);
  fail_each_call(" ENOSPC", 47);
}

TEST_CASE("every system call of the sink fails from some moment on, and the counts are exact") {
  fail_each_call("+ EIO", 142);
  fail_each_call("+ ENOSPC", 142);
}

// SQLite takes ENOLCK and EACCES of a lock, but not of an unlock, for another process's lock.
TEST_CASE("locks that fail are named, and writing resumes when they work again") {
  const TemporaryDirectory directory(memory_or_disk());
  const long locks = SqliteRun(directory.path(), "").calls_of("fcntl64");
  REQUIRE(locks > 60);
  for (const char* const error : {"EIO", "ENOLCK", "EACCES"}) {
    const std::string point = "fcntl64:" + std::to_string(locks / 4);
    for (const std::string& range : {point + "+ ", point + "-" + std::to_string(locks / 4 + 12) + " "}) {
      const SqliteRun run(directory.path(), range + error);
      const bool for_good = range.find('+') != std::string::npos;
      CAPTURE(range, error);
      CHECK(run.wrong_counts(1) == "");
      const std::string line = run.line_with("sqlite: " + run.database().string() + ": ");
      const bool named = line.find("disk I/O error (") != std::string::npos ||
                         line.find("or its file system has no locks") != std::string::npos;
      CHECK(named);
      if (!for_good) CHECK(run.written() > 0);
      CHECK(run.written() < kSteps * kRowsOfStep);
      CHECK(run.line_with("writing works again; ").empty() == for_good);
    }
  }
}

// SQLite looks at no result of an unlock.
TEST_CASE("one lock or unlock that fails costs at most the rows of one step") {
  const TemporaryDirectory directory(memory_or_disk());
  const long locks = SqliteRun(directory.path(), "").calls_of("fcntl64");
  const long last = full_scale() ? locks : locks / 2 + 16;  // more than a step has
  for (long n = full_scale() ? 1 : locks / 2; n <= last; ++n) {
    const SqliteRun run(directory.path(), "fcntl64:" + std::to_string(n) + " EACCES");
    CAPTURE(n);
    CHECK(run.wrong_counts() == "");
    CHECK(run.written() >= (kSteps - 1) * kRowsOfStep);
  }
}

// SQLite then opens it for reading, and refuses to write without the reason.
TEST_CASE("a database that cannot be opened for writing is named with the reason") {
  const TemporaryDirectory directory(memory_or_disk());
  const std::size_t open = SqliteRun(directory.path(), "").last_open();
  REQUIRE(open > 0);
  const SqliteRun run(directory.path(), std::to_string(open) + " ESTALE");
  CHECK(run.wrong_counts() == "");
  CHECK(run.written() == (kSteps - 1) * kRowsOfStep);
  CHECK(run.line_with("it cannot be opened for writing (Stale file handle)")
            .find(run.database().string() + ": ") != std::string::npos);
}

TEST_CASE("a sink killed before any of its system calls leaves a whole database with whole steps") {
  const TemporaryDirectory directory(memory_or_disk());
  const int calls = static_cast<int>(SqliteRun(directory.path(), "").calls());
  for (int n = 1; n <= calls; n += full_scale() ? 1 : 9) {
    const SqliteRun run(directory.path(), std::to_string(n) + " kill");
    CAPTURE(n);
    CHECK(run.state() == State::killed);
    CHECK(run.damage() == "");
  }
}

}  // namespace
}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <random>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include "tests/writers/sinks/sqlite/metrics_database.h"
#include GRADMON_CATCH_HEADER

using namespace gradmon;
namespace fs = std::filesystem;

namespace {

constexpr std::uint32_t kRowsAStep = 2000;

MetricsFile::Options options_with(const fs::path& directory, JournalMode journal) {
  MetricsFile::Options options = file_options(directory);
  options.journal = [journal](const fs::path&) { return journal; };
  return options;
}

// Writes steps from `first` on until it is killed, and a byte to `progress_fd` after each step.
[[noreturn]] void write_until_killed(const fs::path& directory, JournalMode journal, std::int64_t first,
                                     int progress_fd) {
  auto names = std::make_shared<NameTable>();
  SqliteSink sink(options_with(directory, journal), names, Rank{3});
  if (!sink.begin_revision(layout_with({Op::norm}))) ::_exit(1);
  for (std::int64_t step = first;; step += 100) {  // 5 steps a partition
    if (!sink.write_step(Step{step}, norm_records(*names, step, kRowsAStep)) || !sink.flush()) ::_exit(2);
    if (::write(progress_fd, "x", 1) != 1) ::_exit(3);
  }
}

// Kills the process a random time, shorter than a step takes, after it has reported `steps` steps. Returns
// the number of reported steps.
int kill_after(int steps, unsigned microseconds, const fs::path& directory, JournalMode journal,
               std::int64_t first) {
  int pipe[2];
  REQUIRE(::pipe(pipe) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::close(pipe[0]);  // If the parent dies, the next write() to the pipe fails and ends the child.
    write_until_killed(directory, journal, first, pipe[1]);
  }
  ::close(pipe[1]);
  char byte = 0;
  int reported = 0;
  while (reported < steps && ::read(pipe[0], &byte, 1) == 1) ++reported;
  ::usleep(microseconds);  // Any moment will do: the promise holds at all of them.
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  while (::read(pipe[0], &byte, 1) == 1) ++reported;
  ::close(pipe[0]);
  REQUIRE(WIFSIGNALED(status));
  return reported;
}

int kill_count() {
  const char* const scale = std::getenv("GRADMON_TEST_SCALE");
  return scale != nullptr && std::string(scale) == "full" ? 300 : 10;
}

// Kills writers of one directory one after the other: each goes on in what the last one left.
void kill_writers(JournalMode journal) {
  std::mt19937 random(4);
  TextRows expected;
  auto scratch = std::make_unique<TemporaryDirectory>();
  std::int64_t first = 0;
  for (int i = 0; i < kill_count(); ++i) {
    if (i % 10 == 0) {
      scratch = std::make_unique<TemporaryDirectory>();
      first = 0;
    }
    const fs::path path = scratch->path() / kMetricsFileName;
    const int steps = static_cast<int>(random() % 8);
    const int reported =
        kill_after(steps, static_cast<unsigned>(random() % 8000), scratch->path(), journal, first);
    CAPTURE(i, reported);
    if (reported == 0 && first == 0 && !fs::exists(path)) continue;  // killed before it has made the database
    REQUIRE(integrity_error(path) == "");
    REQUIRE(!fs::exists(path.string() + ".aside-1"));
    const std::string from = " FROM v_metrics WHERE step >= " + std::to_string(first);
    if (reported > 0) {
      // Every step has all its rows or none, and all reported steps are there.
      REQUIRE(query_integer(path, "SELECT count(DISTINCT step)" + from) >= reported);
      REQUIRE(query_rows(path, "SELECT DISTINCT count(*)" + from + " GROUP BY step") ==
              TextRows{std::to_string(kRowsAStep)});
      REQUIRE(query_integer(path, "SELECT count(*)" + from +
                                      " AND value <> step * 1000 + CAST(substr(target, 8) "
                                      "AS INTEGER)") == 0);
    }
    first += 100'000;
  }
}

}  // namespace

TEST_CASE("a killed writer of a write-ahead log leaves whole steps, and all that it reported") {
  kill_writers(JournalMode::wal);
}

TEST_CASE("a killed writer of a rollback journal leaves whole steps, and all that it reported") {
  kill_writers(JournalMode::rollback);
}

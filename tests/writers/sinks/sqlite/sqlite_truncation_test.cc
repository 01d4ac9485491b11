// SPDX-License-Identifier: Apache-2.0
// Somebody truncates the files of a database while a rank writes it: the rank must not end.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <random>
#include <system_error>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include "tests/writers/sinks/sqlite/metrics_database.h"
#include GRADMON_CATCH_HEADER

using namespace gradmon;
namespace fs = std::filesystem;

namespace {

constexpr std::uint32_t kRowsAStep = 200;
constexpr char kWritten = 'w', kLost = 'l';

// Writes a step for each byte of `wanted`, and then a letter to `progress`.
[[noreturn]] void write_steps(const fs::path& directory, int progress, int wanted) {
  auto names = std::make_shared<NameTable>();
  {
    SqliteSink sink(file_options(directory), names, Rank{3});
    if (!sink.begin_revision(layout_with({Op::norm}))) ::_exit(1);
    char byte = 0;
    for (std::int64_t step = 0; ::read(wanted, &byte, 1) == 1; ++step) {
      const bool written = sink.write_step(Step{step}, norm_records(*names, step, kRowsAStep)).has_value();
      if (::write(progress, written ? &kWritten : &kLost, 1) != 1) ::_exit(2);
    }
  }
  ::_exit(0);
}

struct Outcome {
  int status = 0;     // of the process; 1000 and more: the signal that ended it
  std::string steps;  // the letters
};

int truncations() {
  const char* const scale = std::getenv("GRADMON_TEST_SCALE");
  return scale != nullptr && std::string(scale) == "full" ? 2000 : 150;
}

// A process that writes steps when it is told to.
class Writer {
 public:
  explicit Writer(const fs::path& directory) {
    int progress[2], wanted[2];
    REQUIRE(::pipe(progress) == 0);
    REQUIRE(::pipe(wanted) == 0);
    child_ = ::fork();
    REQUIRE(child_ >= 0);
    if (child_ == 0) {
      ::close(progress[0]);
      ::close(wanted[1]);
      write_steps(directory, progress[1], wanted[0]);
    }
    ::close(progress[1]);
    ::close(wanted[0]);
    progress_ = progress[0];
    wanted_ = wanted[1];
  }

  void begin(std::size_t steps) { REQUIRE(::write(wanted_, std::string(steps, '.').data(), steps) > 0); }
  void wait_for(std::size_t steps) {
    char letter = 0;
    while (steps-- > 0 && ::read(progress_, &letter, 1) == 1) outcome_.steps += letter;
  }
  Outcome end() {
    ::close(wanted_);
    int status = 0;
    ::waitpid(child_, &status, 0);
    ::close(progress_);
    outcome_.status = WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
    return outcome_;
  }

 private:
  pid_t child_ = -1;
  int progress_ = -1, wanted_ = -1;
  Outcome outcome_;
};

// Truncates the file with that suffix to a random size, again and again, while a process writes; then lets it
// write undisturbed.
Outcome write_and_truncate(const fs::path& directory, const std::string& suffix) {
  std::signal(SIGPIPE, SIG_IGN);  // the process may end
  Writer writer(directory);
  std::mt19937 random(5);
  const std::string path = (directory / kMetricsFileName).string() + suffix;
  writer.begin(3);
  writer.wait_for(3);
  for (int i = 0; i < truncations(); ++i) {
    writer.begin(2);
    ::usleep(static_cast<unsigned>(random() % 3000));  // any moment will do
    std::error_code ignored;                           // while the file is made anew it is not there
    fs::resize_file(path, random() % 4 == 0 ? random() % 70'000 : 0, ignored);
    writer.wait_for(2);
  }
  writer.begin(20);
  writer.wait_for(20);
  return writer.end();
}

}  // namespace

TEST_CASE("a writer whose index is truncated goes on, and each step is there or counted as lost") {
  const TemporaryDirectory scratch;
  const Outcome outcome = write_and_truncate(scratch.path(), "-shm");
  CHECK(outcome.status == 0);
  REQUIRE(!outcome.steps.empty());
  CHECK(outcome.steps.back() == kWritten);
  CHECK(outcome.steps.find(kLost) != std::string::npos);
  const fs::path path = scratch / kMetricsFileName;
  CHECK(integrity_error(path) == "");
  CHECK(!fs::exists(path.string() + ".aside-1"));
  TextRows expected;
  for (std::size_t step = 0; step < outcome.steps.size(); ++step) {
    if (outcome.steps[step] == kWritten)
      expected.push_back(std::to_string(step) + "|" + std::to_string(kRowsAStep));
  }
  CHECK(query_rows(path, "SELECT step, count(*) FROM v_metrics GROUP BY step ORDER BY step") == expected);
}

TEST_CASE("a writer whose log or database is truncated goes on") {
  for (const char* const suffix : {"-wal", ""}) {
    const TemporaryDirectory scratch;
    const Outcome outcome = write_and_truncate(scratch.path(), suffix);
    CAPTURE(suffix, outcome.steps);
    CHECK(outcome.status == 0);
    CHECK(outcome.steps.size() == static_cast<std::size_t>(3 + 2 * truncations() + 20));
    CHECK(outcome.steps.back() == kWritten);
  }
}

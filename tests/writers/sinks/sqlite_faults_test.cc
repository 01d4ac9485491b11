// SPDX-License-Identifier: Apache-2.0
// What the sink does when its file is deleted, replaced, damaged, locked or cannot be written.
#include <sys/stat.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <random>
#include <system_error>

#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/writers/files_in.h"
#include "tests/writers/killed_writer.h"
#include "tests/writers/sinks/metrics_database.h"
#include "tests/writers/small_disk.h"

using namespace gradmon;

namespace {

// "" if all rows were written.
std::string write_step(SqliteSink& sink, NameTable& names, std::int64_t step, std::uint32_t rows = 10) {
  const auto written = sink.write_step(Step{step}, norm_records(names, step, rows));
  return written ? "" : written.error().text;
}

struct Fixture {
  Fixture() { start(); }
  void start() {
    sink = std::make_unique<SqliteSink>(options, names, Rank{3});
    REQUIRE(sink->begin_revision(layout_with({Op::norm})));
  }
  fs::path path() const { return scratch.path() / "run" / kMetricsFileName; }
  std::string write(std::int64_t step, std::uint32_t rows = 10) {
    return write_step(*sink, *names, step, rows);
  }
  TextRows steps() const { return query_rows(path(), "SELECT DISTINCT step FROM v_metrics ORDER BY step"); }

  const TemporaryDirectory scratch;
  MetricsFile::Options options = file_options(scratch.path() / "run");
  const std::shared_ptr<NameTable> names = std::make_shared<NameTable>();
  std::unique_ptr<SqliteSink> sink;
};

struct WithStep1 : Fixture {
  WithStep1() { CHECK(write(1) == ""); }
};

bool maps(const std::string& file) {
  std::ifstream lines("/proc/self/maps");
  for (std::string line; std::getline(lines, line);) {
    if (line.find(file) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("a new database and its journal have mode 0640") {
  const mode_t before = ::umask(022);
  WithStep1 f;
  ::umask(before);
  for (const char* const side : {"", "-journal"}) CHECK(mode_of(f.path().string() + side) == 0640);
}

TEST_CASE("a closed database is one file") {
  WithStep1 f;
  f.sink.reset();
  CHECK(files_in(f.path().parent_path()) == std::set<std::string>{kMetricsFileName});
  CHECK(f.steps() == TextRows{"1"});
}

TEST_CASE("a write-ahead log is ended, and no file is mapped") {
  WithStep1 f;
  const auto log_of = [&f](const auto& use) {
    auto other = SqliteDatabase::open(f.path(), SqliteDatabase::Access::read_write);
    REQUIRE(other);
    REQUIRE(other->run("PRAGMA journal_mode = WAL; CREATE TABLE IF NOT EXISTS other (a)"));
    use(*other);
  };
  log_of([](SqliteDatabase&) {});  // between two steps: the file names it, but none is there
  CHECK(f.write(2) == "");
  CHECK(f.write(3) == "");
  CHECK(!maps(kMetricsFileName));
  write_text(f.path().string() + "-wal", "");  // SQLite takes any file of that name for a log
  CHECK(f.write(4) == "");
  CHECK(!maps(kMetricsFileName));
  f.sink.reset();
  log_of([](SqliteDatabase&) {});  // as an older gradmon has left it
  f.start();
  CHECK(f.write(5) == "");
  CHECK(!maps(kMetricsFileName));
  log_of([&f](SqliteDatabase&) { CHECK(f.write(6) != ""); });  // still open in another program
  CHECK(f.write(7) == "");
  CHECK(!maps(kMetricsFileName));
  CHECK(query_rows(f.path(), "PRAGMA journal_mode") == TextRows{"delete"});
  CHECK(f.steps() == TextRows{"1", "2", "3", "4", "5", "7"});
}

TEST_CASE("a deleted directory or database is made anew") {
  WithStep1 f;
  fs::remove_all(f.path().parent_path());
  CHECK(f.write(2) == "");
  CHECK(f.steps() == TextRows{"2"});
  fs::remove(f.path());
  CHECK(f.write(3) == "");
  CHECK(f.steps() == TextRows{"3"});
  CHECK(integrity_error(f.path()) == "");
}

TEST_CASE("a database that is moved away is complete, and a new one is made in its place") {
  WithStep1 f;
  const fs::path moved = f.scratch.path() / "moved.db";
  fs::rename(f.path(), moved);
  CHECK(f.write(2) == "");
  CHECK(query_rows(moved, "SELECT count(*), max(step) FROM v_metrics") == TextRows{"10|1"});
  CHECK(f.steps() == TextRows{"2"});
}

TEST_CASE("a deleted journal loses no row that was written") {
  WithStep1 f;
  fs::remove(f.path().string() + "-journal");
  CHECK(f.write(2) == "");
  CHECK(f.steps() == TextRows{"1", "2"});
  CHECK(integrity_error(f.path()) == "");
}

TEST_CASE("anything in the place of the database that is no database of ours is moved aside and kept") {
  using Put = std::function<void(const fs::path&)>;
  const auto database = [](const std::string& statements) {
    return Put([statements](const fs::path& path) {
      write_text(path, "");
      auto made = SqliteDatabase::open(path, SqliteDatabase::Access::read_write);
      REQUIRE(made);
      REQUIRE(made->run(statements));
    });
  };
  const std::string mark = "PRAGMA application_id = " + std::to_string(kMetricsApplicationId) + ";";
  const std::vector<std::pair<std::string, Put>> cases{
      {"no database", [](const fs::path& path) { write_text(path, std::string(10'000, 'x')); }},
      {"another database", database("CREATE TABLE other (a); INSERT INTO other VALUES (42)")},
      {"a newer version", database(mark + "PRAGMA user_version = 2; CREATE TABLE a (b)")},
      {"other tables", database(mark + "PRAGMA user_version = 1; CREATE TABLE a (b)")},
      {"an endless view",
       database(mark + "PRAGMA user_version = 1; CREATE VIEW monitoring_metrics (metric_id, metric_name) AS "
                       "WITH RECURSIVE r (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) "
                       "SELECT x, 'endless' FROM r")},
      {"a directory", [](const fs::path& path) { fs::create_directory(path); }},
      {"a link",
       [](const fs::path& path) {
         write_text(path.parent_path().parent_path() / "elsewhere", "precious");
         fs::create_symlink("../elsewhere", path);
       }},
      {"a pipe", [](const fs::path& path) { REQUIRE(::mkfifo(path.c_str(), 0600) == 0); }}};
  for (const auto& [name, put] : cases) {
    INFO(name);
    Fixture f;
    fs::create_directories(f.path().parent_path());
    put(f.path());
    const std::string before = fs::is_fifo(f.path()) ? "" : read_text(f.path());
    CHECK(f.write(1) == "");
    CHECK(f.steps() == TextRows{"1"});
    const fs::path aside = f.path().string() + ".aside-1";
    REQUIRE(fs::exists(aside));
    if (!fs::is_fifo(aside)) CHECK(read_text(aside) == before);
  }
}

TEST_CASE("a trigger in the file is not followed") {
  WithStep1 f;
  auto other = SqliteDatabase::open(f.path(), SqliteDatabase::Access::read_write);
  REQUIRE(other);
  REQUIRE(
      other->run("CREATE TRIGGER t AFTER INSERT ON metric_4_step_0_499 BEGIN DELETE FROM "
                 "metric_4_step_0_499; END"));
  CHECK(f.write(2) == "");
  CHECK(f.steps() == TextRows{"1", "2"});
}

TEST_CASE("a database damaged while it is open is moved aside and the step goes to a new one") {
  Fixture f;
  for (std::int64_t step = 0; step < 300; ++step) CHECK(f.write(step, 100) == "");
  f.sink.reset();
  const auto size = fs::file_size(f.path());
  std::string content = read_text(f.path());
  for (std::size_t at = 8192; at < size; at += 64) content[at] = '\xff';
  write_text(f.path(), content);
  f.start();
  CHECK(f.write(300) == "");
  CHECK(f.steps() == TextRows{"300"});
  CHECK(read_text(f.path().string() + ".aside-1").size() == content.size());
}

TEST_CASE("no more than eight files are moved aside") {
  Fixture f;
  fs::create_directories(f.path().parent_path());
  for (int i = 1; i <= MetricsFile::kMostAside; ++i)
    write_text(f.path().string() + ".aside-" + std::to_string(i), "older");
  write_text(f.path(), std::string(10'000, 'x'));
  CHECK(f.write(1) ==
        f.path().string() + ": file is not a database, and 8 files are already moved aside; remove them");
  CHECK(read_text(f.path()).size() == 10'000);
  CHECK(read_text(f.path().string() + ".aside-1") == "older");
}

TEST_CASE("a step is lost and counted while another process writes or reads for too long, and no longer") {
  for (const char* const use : {"BEGIN IMMEDIATE", "BEGIN; SELECT count(*) FROM metric_4_step_0_499"}) {
    WithStep1 f;
    auto other = SqliteDatabase::open(f.path(), SqliteDatabase::Access::read_write);
    REQUIRE(other);
    REQUIRE(other->run(use));
    const auto locked = f.sink->write_step(Step{2}, norm_records(*f.names, 2, 10));
    REQUIRE_FALSE(locked);
    CHECK(locked.error().rows_lost == 10);
    CHECK(locked.error().text.find(f.path().string() + ": database is locked") != std::string::npos);
    REQUIRE(other->run("ROLLBACK"));
    CHECK(f.write(3) == "");
    CHECK(f.steps() == TextRows{"1", "3"});
  }
}

TEST_CASE("a step waits for a reader that ends in time, and further readers wait for the step") {
  Fixture f;
  f.options.busy_timeout = std::chrono::seconds(60);
  f.start();
  CHECK(f.write(1) == "");
  auto first = SqliteDatabase::open(f.path(), SqliteDatabase::Access::read_only);
  REQUIRE(first);
  REQUIRE(first->run("BEGIN; SELECT count(*) FROM metric_4_step_0_499"));
  std::thread reader([&] {
    const auto is_refused = [&f] {
      auto second = SqliteDatabase::open(f.path(), SqliteDatabase::Access::read_only);
      return second && !second->integer("SELECT count(*) FROM metric_4_step_0_499");
    };
    while (!is_refused()) std::this_thread::yield();
    static_cast<void>(first->run("COMMIT"));
  });
  CHECK(f.write(2) == "");
  reader.join();
  CHECK(f.steps() == TextRows{"1", "2"});
}

TEST_CASE("a reader sees whole steps only, while they are written") {
  Fixture f;
  f.options.busy_timeout = std::chrono::seconds(60);
  f.start();
  CHECK(f.write(0, 200) == "");
  std::atomic<bool> stop{false};
  int wrong = 0;
  int looks = 0;
  std::thread reader([&] {
    while (!stop) {
      const TextRows rows =
          query_rows(f.path(), "SELECT count(*) % 200, count(DISTINCT step) * 200 = count(*) FROM v_metrics");
      wrong += rows == TextRows{"0|1"} ? 0 : 1;
      ++looks;
    }
  });
  for (std::int64_t step = 1; step < 600; ++step) CHECK(f.write(step, 200) == "");
  stop = true;
  reader.join();
  CHECK(looks > 0);
  CHECK(wrong == 0);
}

TEST_CASE("a directory that cannot be made is an error that names it") {
  Fixture f;
  f.options.directory = [] { return fs::path("/proc/no/such/directory"); };
  f.start();
  CHECK(f.write(1) ==
        "/proc/no/such/directory/monitor_metrics.db: cannot make it: No such file or directory");
}

namespace {

struct FullDisk {
  bool mounted = false;
  std::uint64_t sent = 0;
  std::uint64_t written = 0;
  std::uint64_t stored = 0;
  int lost_steps = 0;
  int written_after = 0;
  std::string error;
  std::string damage;
};

// Writes steps until a small disk is full, then frees space.
FullDisk fill_disk(const fs::path& place) {
  FullDisk result;
  result.mounted = on_small_disk(place, 4U << 20U, [&] {
    const std::string ballast = (place / "ballast").string();
    write_text(ballast, std::string(2'000'000, 'b'));
    auto names = std::make_shared<NameTable>();
    SqliteSink sink(file_options(place), names, Rank{3});
    if (!sink.begin_revision(layout_with({Op::norm}))) return;
    const auto write = [&](std::int64_t step) {
      const auto written = sink.write_step(Step{step}, norm_records(*names, step, 500));
      result.sent += 500;
      result.written += 500 - (written ? 0 : written.error().rows_lost);
      if (!written) result.error = written.error().text;
      return written.has_value();
    };
    std::int64_t step = 0;
    while (step < 1000 && result.lost_steps < 20) result.lost_steps += write(step++) ? 0 : 1;
    fs::remove(ballast);
    for (int i = 0; i < 5; ++i) result.written_after += write(step++) ? 1 : 0;
    result.stored = stored_rows_in(place);
    result.damage = integrity_error(place / kMetricsFileName);
  });
  return result;
}

}  // namespace

TEST_CASE("a full disk loses whole steps, all counted, and writing resumes when there is space") {
  const TemporaryDirectory scratch;
  const FullDisk result = fill_disk(scratch.path());
  if (!result.mounted) {
    WARN("skipped: needs root, to mount a small disk");
    return;
  }
  CHECK(result.lost_steps == 20);
  CHECK(result.error.find("database or disk is full") != std::string::npos);
  CHECK(result.written_after == 5);
  CHECK(result.stored == result.written);
  CHECK(result.damage == "");
}

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
Outcome write_and_truncate(const fs::path& directory, const std::string& suffix, int truncations) {
  std::signal(SIGPIPE, SIG_IGN);  // the process may end
  Writer writer(directory);
  std::mt19937 random(5);
  const std::string path = (directory / kMetricsFileName).string() + suffix;
  writer.begin(3);
  writer.wait_for(3);
  for (int i = 0; i < truncations; ++i) {
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

TEST_CASE("a writer whose journal or database is truncated goes on") {
  const std::pair<const char*, int> cases[] = {{"-journal", kill_count(150, 2000)},
                                               {"", MetricsFile::kMostAside}};  // each may move a file aside
  for (const auto& [suffix, truncations] : cases) {
    const TemporaryDirectory scratch;
    const Outcome outcome = write_and_truncate(scratch.path(), suffix, truncations);
    CAPTURE(suffix, outcome.steps);
    CHECK(outcome.status == 0);
    CHECK(outcome.steps.size() == static_cast<std::size_t>(3 + 2 * truncations + 20));
    CHECK(outcome.steps.back() == kWritten);
  }
}

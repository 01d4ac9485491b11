// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/sqlite_sink.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "control/files/descriptor.h"
#include "control/log.h"
#include "writers/sinks/metrics_schema.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

constexpr std::array kCompanions = {"-wal", "-shm", "-journal"};
// The system writes committed steps to the disk, or sync() does. Otherwise each step would wait for the disk
// four times.
constexpr const char* kSettings =
    "PRAGMA synchronous = OFF; PRAGMA cache_size = -8192; PRAGMA temp_store = MEMORY; "
    "PRAGMA locking_mode = NORMAL;";

fs::path beside(const fs::path& path, const std::string& suffix) { return path.string() + suffix; }

// nullopt if the file does not exist or cannot be examined.
std::optional<struct stat> look_at(const fs::path& path) {
  struct stat seen {};
  if (::lstat(path.c_str(), &seen) != 0) return std::nullopt;
  return seen;
}

// The texts of all tables that every database has.
constexpr const char* kTables =
    "SELECT group_concat(sql, ';') FROM (SELECT sql FROM sqlite_schema WHERE name IN ('monitoring_targets', "
    "'monitoring_metrics', 'metric_stats', 'global_stats', 'target_tensors', 'target_scope', "
    "'target_layers') "
    "ORDER BY name)";

// True if this version makes the same tables. Other databases are not read: a view may never end.
SqliteResult<bool> has_our_tables(SqliteDatabase& database) {
  auto own = SqliteDatabase::open("", SqliteDatabase::Access::in_memory);
  if (!own) return tl::unexpected(own.error());
  if (auto made = own->run(create_metrics_schema()); !made) return tl::unexpected(made.error());
  const auto expected = own->text(kTables);
  if (!expected) return tl::unexpected(expected.error());
  const auto found = database.text(kTables);
  if (!found) return tl::unexpected(found.error());
  return *found == *expected;
}

std::string message(int error) { return std::system_category().message(error); }

tl::unexpected<std::string> failure(const char* verb, const std::string& cause) {
  return tl::unexpected("cannot " + std::string(verb) + " it: " + cause);
}

SqliteResult<void> add_samples(SqliteDatabase& database, const std::string& partition,
                               SamplesByStep& samples) {
  auto rows =
      database.prepare("SELECT step, max(samples) FROM " + partition + " WHERE samples > 0 GROUP BY step");
  if (!rows) return tl::unexpected(rows.error());
  for (;;) {
    const auto row = rows->step();
    if (!row) return tl::unexpected(row.error());
    if (!*row) return {};
    samples[rows->integer(0)] = static_cast<std::int64_t>(rows->value(1).real);
  }
}

// Empty if the database has another schema: the sink moves it aside.
SqliteResult<SamplesByStep> samples_in(const std::filesystem::path& path, std::int64_t from) {
  SamplesByStep samples;
  auto opened = MetricsFile::open_alone(path, MetricsFile::Options{}.busy_timeout);
  if (!opened) return tl::unexpected(opened.error());
  SqliteDatabase& database = *opened;
  if (auto set = database.run("PRAGMA query_only = ON"); !set) return tl::unexpected(set.error());
  const auto application = database.integer("PRAGMA application_id");
  if (!application) return tl::unexpected(application.error());
  if (*application != kMetricsApplicationId) return samples;
  const auto metrics = read_metrics(database);
  if (!metrics) return tl::unexpected(metrics.error());
  for (const auto& [id, metric] : *metrics) {
    const auto& stats = metric.stats;
    if (id != metric_id_of(Kind::scalar) || std::find(stats.begin(), stats.end(), "samples") == stats.end())
      continue;
    for (auto name = metric.partitions.rbegin(); name != metric.partitions.rend(); ++name) {
      if (auto added = add_samples(database, *name, samples); !added) return tl::unexpected(added.error());
      if (!samples.empty() && samples.begin()->first < from) break;
    }
  }
  return samples;
}

}  // namespace

tl::expected<MetricsFile::Opened, std::string> MetricsFile::open() {
  if (is_open()) return Opened::already;
  path_ = options_.directory() / kMetricsFileName;
  if (!damage_.empty()) {
    if (auto moved = move_aside(damage_); !moved) return tl::unexpected(moved.error());
    damage_.clear();
  }
  auto opened = open_existing();
  if (!opened && !damage_.empty()) {
    if (auto moved = move_aside(std::exchange(damage_, "")); !moved) return tl::unexpected(moved.error());
    opened = open_existing();
  }
  if (!opened) return tl::unexpected(opened.error());
  return Opened::anew;
}

// Opens the file; makes a missing one first. Sets damage_ if it must be moved aside.
tl::expected<void, std::string> MetricsFile::open_existing() {
  auto seen = look_at(path_);
  if (seen && !S_ISREG(seen->st_mode)) {
    damage_ = "it is not a regular file";
    return tl::unexpected(damage_);
  }
  if (!seen) {
    if (auto made = create_file(); !made) return made;
    seen = look_at(path_);
    if (!seen) return failure("make", message(errno));
  }
  device_ = seen->st_dev;
  inode_ = seen->st_ino;
  auto opened = open_alone(path_, options_.busy_timeout);
  if (!opened) return failure("open", opened.error().text);
  database_ = std::move(*opened);
  const auto prepared = [this]() -> SqliteResult<void> {
    auto ours = is_ours();
    if (!ours) return tl::unexpected(ours.error());
    if (!*ours)
      return tl::unexpected(SqliteError{
          SqliteError::Cause::damaged,
          "it is not a gradmon database of schema version " + std::to_string(kMetricsSchemaVersion)});
    return configure();
  }();
  if (prepared) return {};
  close_after(prepared.error());
  return failure("open", prepared.error().text);
}

tl::expected<void, std::string> MetricsFile::create_file() const {
  // SQLite would take side files of an earlier database for those of the new one.
  for (const char* const companion : kCompanions) {
    const fs::path file = beside(path_, companion);
    const auto seen = look_at(file);
    if (!seen) continue;
    if (S_ISREG(seen->st_mode) && seen->st_size == 0) {
      if (::unlink(file.c_str()) == 0) continue;
      return failure("make", "cannot remove " + file.string() + ": " + message(errno));
    }
    if (auto moved = move_aside("side files without a database"); !moved) return moved;
    break;
  }
  const Descriptor file(::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0640));
  if (file.get() < 0) return failure("make", message(errno));
  return {};
}

SqliteResult<SqliteDatabase> MetricsFile::open_alone(const std::filesystem::path& path,
                                                     std::chrono::milliseconds busy_timeout) {
  auto database = SqliteDatabase::open(path, SqliteDatabase::Access::read_write);
  if (!database) return database;
  database->set_busy_timeout(busy_timeout);
  // With this locking mode the index of a write-ahead log is private memory.
  if (auto set = database->run("PRAGMA mmap_size = 0; PRAGMA locking_mode = EXCLUSIVE"); !set)
    return tl::unexpected(set.error());
  return database;
}

// True if the database has this schema or is empty. Gives an empty one its schema.
SqliteResult<bool> MetricsFile::is_ours() {
  const auto application = database_.integer("PRAGMA application_id");
  if (!application) return tl::unexpected(application.error());
  const auto version = database_.integer("PRAGMA user_version");
  if (!version) return tl::unexpected(version.error());
  if (*application == kMetricsApplicationId && *version == kMetricsSchemaVersion)
    return has_our_tables(database_);
  const auto tables = database_.integer("SELECT count(*) FROM sqlite_schema");
  if (!tables) return tl::unexpected(tables.error());
  return *application == 0 && *version == 0 && *tables == 0;
}

SqliteResult<void> MetricsFile::configure() {
  const auto empty = database_.integer("SELECT count(*) FROM sqlite_schema");
  if (!empty) return tl::unexpected(empty.error());
  if (*empty == 0) {
    if (auto sized = database_.run("PRAGMA page_size = 8192"); !sized) return sized;
  }
  const auto mode = database_.text("PRAGMA journal_mode = TRUNCATE");  // also ends a write-ahead log
  if (!mode) return tl::unexpected(mode.error());
  if (*mode != "truncate")
    return tl::unexpected(
        SqliteError{SqliteError::Cause::busy, "its journal cannot be changed from " + *mode});
  if (auto set = database_.run(kSettings); !set) return set;
  return *empty == 0 ? create_schema() : SqliteResult<void>{};
}

SqliteResult<void> MetricsFile::create_schema() {
  return database_.run("BEGIN IMMEDIATE;" + create_metrics_schema() + "COMMIT;");
}

bool MetricsFile::is_unchanged() const {
  const auto seen = look_at(path_);
  if (!seen || seen->st_dev != device_ || seen->st_ino != inode_) return false;
  return !look_at(beside(path_, "-wal"));
}

void MetricsFile::leave() {
  close();
  log_warn(path_.string() + " was deleted, moved or replaced, or has another journal; opening it anew");
}

SqliteResult<void> MetricsFile::sync() {
  synced_ = std::chrono::steady_clock::now();
  return database_.sync();
}

SqliteResult<void> MetricsFile::sync_if_due() {
  const bool due = std::chrono::steady_clock::now() - synced_ >= kSyncEvery;
  return due ? sync() : SqliteResult<void>{};
}

void MetricsFile::close() {
  if (is_open() && is_unchanged())
    static_cast<void>(database_.run("PRAGMA journal_mode = DELETE"));  // removes the empty journal
  database_ = {};
}

void MetricsFile::close_after(const SqliteError& error) {
  close();
  if (error.cause == SqliteError::Cause::damaged) damage_ = error.text;
}

tl::expected<void, std::string> MetricsFile::move_aside(const std::string& why) const {
  for (int n = 1; n <= kMostAside; ++n) {
    const fs::path aside = beside(path_, ".aside-" + std::to_string(n));
    bool taken = look_at(aside).has_value();
    for (const char* const companion : kCompanions) taken = taken || look_at(beside(aside, companion));
    if (taken) continue;
    for (const char* const companion : kCompanions)
      static_cast<void>(::rename(beside(path_, companion).c_str(), beside(aside, companion).c_str()));
    if (::rename(path_.c_str(), aside.c_str()) != 0 && errno != ENOENT)
      return failure("move aside", message(errno));
    log_warn(path_.string() + ": " + why + "; moved to " + aside.string());
    return {};
  }
  return tl::unexpected(why + ", and " + std::to_string(kMostAside) +
                        " files are already moved aside; remove them");
}

tl::expected<SamplesByStep, std::string> SqliteSink::find_samples(const std::filesystem::path& directory,
                                                                  std::int64_t from) {
  const std::filesystem::path path = directory / kMetricsFileName;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return SamplesByStep{};
  auto found = samples_in(path, from);
  if (found) return std::move(*found);
  if (found.error().cause == SqliteError::Cause::damaged) return SamplesByStep{};
  return tl::unexpected(path.string() + ": " + found.error().text);
}

SqliteSink::SqliteSink(MetricsFile::Options file, std::shared_ptr<const NameTable> names, Rank rank,
                       Resume resume, std::shared_ptr<const ScopeTable> scopes)
    : resume_(resume), file_(std::move(file)), rows_(std::move(names), rank, std::move(scopes)) {}

tl::expected<void, SinkError> SqliteSink::begin_revision(const Layout& layout) {
  rows_.begin_revision(layout);
  return {};
}

tl::expected<void, SinkError> SqliteSink::write_step(Step step, const RecordBatch& records) {
  const std::uint64_t count = records.size();
  auto written = write_or_look(step, records);
  // The damaged file is moved aside, and the step goes to a new one.
  if (!written && written.error().cause == SqliteError::Cause::damaged)
    written = write_or_look(step, records);
  if (!written) return tl::unexpected(make_error(written.error().text, count));
  records.each_kind([this](Kind kind, RecordBatch::Iterator begin, RecordBatch::Iterator end) {
    return !on_part_ || on_part_(kind, static_cast<std::uint64_t>(end - begin));
  });
  if (*written == count) return {};
  const std::uint64_t lost = count - *written;
  return tl::unexpected(make_error(std::to_string(lost) + " rows of step " + std::to_string(step.value) +
                                       " are already there and were not written again",
                                   lost));
}

// A failed commit may still have been made: checks the database.
SqliteResult<std::uint64_t> SqliteSink::write_or_look(Step step, const RecordBatch& records) {
  const auto written = write_transaction(step, records);
  if (written || !committing_ || written.error().cause == SqliteError::Cause::busy) return written;
  const auto kept = is_kept(step);
  if (kept && *kept) {
    doubtful_.clear();
    return *committing_;
  }
  if (!kept && doubtful_.size() < kMostDoubtful) doubtful_.push_back(step);
  return written;
}

tl::expected<void, SinkError> SqliteSink::flush() {
  if (!file_.is_open() || !file_.is_unchanged()) return {};
  const auto synced = file_.sync();
  if (synced) return {};
  close(synced.error());
  return tl::unexpected(make_error(synced.error().text, 0));
}

// Returns the rows written. Any failure, even an exception, closes the file, which rolls back.
SqliteResult<std::uint64_t> SqliteSink::write_transaction(Step step, const RecordBatch& records) {
  struct Closer {
    SqliteSink& sink;
    SqliteError error = {};
    bool committed = false;
    ~Closer() {
      if (!committed) sink.close(error);
    }
  } closer{*this};
  committing_.reset();
  const auto written = write_rows(step, records);
  closer.committed = written.has_value();
  if (!written) closer.error = written.error();
  return written;
}

SqliteResult<std::uint64_t> SqliteSink::write_rows(Step step, const RecordBatch& records) {
  if (auto opened = open(); !opened) return tl::unexpected(opened.error());
  if (auto synced = file_.sync_if_due(); !synced) return tl::unexpected(synced.error());
  SqliteDatabase& database = file_.database();
  if (auto begun = database.run("BEGIN IMMEDIATE"); !begun) return tl::unexpected(begun.error());
  for (const Step doubtful : doubtful_) {
    if (auto removed = rows_.remove_rows(database, doubtful); !removed)
      return tl::unexpected(removed.error());
  }
  const auto is_there = resume_ == Resume::yes ? rows_.has_rows(database, step) : SqliteResult<bool>(false);
  if (!is_there) return tl::unexpected(is_there.error());
  // Nothing is committed yet: this only shows progress.
  auto written = rows_.write(database, step, records, *is_there,
                             [this](Kind kind) { return !on_part_ || on_part_(kind, 0); });
  if (!written) return written;
  if (*is_there) written = records.size();  // skipped rows are already there
  committing_ = *written;
  if (auto committed = database.run("COMMIT"); !committed) return tl::unexpected(committed.error());
  doubtful_.clear();
  return written;
}

SqliteResult<void> SqliteSink::open() {
  if (file_.is_open() && !file_.is_unchanged()) {
    rows_.release();
    file_.leave();
  }
  const auto opened = file_.open();
  if (!opened) return tl::unexpected(SqliteError{SqliteError::Cause::environment, opened.error()});
  return *opened == MetricsFile::Opened::anew ? rows_.prepare(file_.database()) : SqliteResult<void>{};
}

SinkError SqliteSink::make_error(const std::string& text, std::uint64_t rows_lost) const {
  return {file_.path().string() + ": " + text, rows_lost};
}

SqliteResult<bool> SqliteSink::is_kept(Step step) {
  const auto opened = open();
  auto kept = opened ? rows_.has_rows(file_.database(), step) : tl::unexpected(opened.error());
  if (!kept) close(kept.error());
  return kept;
}

void SqliteSink::close(const SqliteError& error) {
  rows_.release();
  file_.close_after(error);
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/sqlite/sqlite_sink.h"

#include <algorithm>
#include <string>
#include <system_error>

#include "writers/sinks/sqlite/metric_catalog.h"

namespace gradmon {
namespace {

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
  auto opened = SqliteDatabase::open(path, SqliteDatabase::Access::read_write);
  if (!opened) return tl::unexpected(opened.error());
  SqliteDatabase& database = *opened;
  database.set_busy_timeout(MetricsFile::Options{}.busy_timeout);
  if (auto set = MetricsFile::avoid_mapped_index(database); !set) return tl::unexpected(set.error());
  if (auto set = database.run("PRAGMA mmap_size = 0; PRAGMA query_only = ON"); !set)
    return tl::unexpected(set.error());
  const auto application = database.integer("PRAGMA application_id");
  if (!application) return tl::unexpected(application.error());
  if (*application != kMetricsApplicationId) return samples;
  const auto metrics = read_metrics(database);
  if (!metrics) return tl::unexpected(metrics.error());
  for (const StoredMetric& metric : *metrics) {
    const auto& stats = metric.stats;
    if (metric.id != metric_id_of(Kind::scalar) ||
        std::find(stats.begin(), stats.end(), "samples") == stats.end())
      continue;
    for (auto name = metric.partitions.rbegin(); name != metric.partitions.rend(); ++name) {
      if (auto added = add_samples(database, *name, samples); !added) return tl::unexpected(added.error());
      if (!samples.empty() && samples.begin()->first < from) break;
    }
  }
  return samples;
}

}  // namespace

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

tl::expected<void, SinkError> SqliteSink::write_step(Step step, const std::vector<Record>& records) {
  const std::uint64_t count = records.size();
  auto written = write_or_look(step, records);
  // The damaged file is moved aside, and the step goes to a new one.
  if (!written && written.error().cause == SqliteError::Cause::damaged)
    written = write_or_look(step, records);
  if (!written) return tl::unexpected(error_of(written.error().text, count));
  each_kind(records, [this](Kind kind, const Record* begin, const Record* end) {
    return !on_part_ || on_part_(kind, static_cast<std::uint64_t>(end - begin));
  });
  if (*written == count) return {};
  const std::uint64_t lost = count - *written;
  return tl::unexpected(error_of(std::to_string(lost) + " rows of step " + std::to_string(step.value) +
                                     " are already there and were not written again",
                                 lost));
}

// A failed commit may still have been made: checks the database.
SqliteResult<std::uint64_t> SqliteSink::write_or_look(Step step, const std::vector<Record>& records) {
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

// Returns the rows written. Any failure, even an exception, closes the file, which rolls back.
SqliteResult<std::uint64_t> SqliteSink::write_transaction(Step step, const std::vector<Record>& records) {
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

SqliteResult<std::uint64_t> SqliteSink::write_rows(Step step, const std::vector<Record>& records) {
  if (auto opened = open(); !opened) return tl::unexpected(opened.error());
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

SinkError SqliteSink::error_of(const std::string& text, std::uint64_t rows_lost) const {
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

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "writers/queue/name_table.h"
#include "writers/queue/sink.h"
#include "writers/sinks/earlier_output.h"
#include "writers/sinks/step_writer.h"
#include "writers/sqlite/sqlite_database.h"

namespace gradmon {

// The file monitor_metrics.db of a run: opens it, creates it, and notices when it was deleted or replaced.
// Its journal is a rollback journal. A write-ahead log would have an index, "-shm", that its users map: a
// process that truncates it ends the others by SIGBUS. No file is mapped here. One thread at a time.
class MetricsFile {
 public:
  struct Options {
    // Returns the directory, made if missing.
    std::function<std::filesystem::path()> directory;
    // The time for which a step waits for a reader; then it is lost. WriterThread::stop() gives up after 2 s.
    std::chrono::milliseconds busy_timeout{1000};
  };
  // Opens a database so that no file is mapped, whatever its journal; other processes cannot use it until
  // `locking_mode` is NORMAL.
  [[nodiscard]] static SqliteResult<SqliteDatabase> open_alone(const std::filesystem::path& path,
                                                               std::chrono::milliseconds busy_timeout);
  static constexpr std::chrono::seconds kSyncEvery{5};
  // Limit of files beside the database that were moved aside.
  static constexpr int kMostAside = 8;

  enum class Opened {
    already,  // unchanged since the last call
    anew      // its content is unknown
  };

  explicit MetricsFile(Options options) : options_(std::move(options)) {}
  ~MetricsFile() { close(); }
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  // Opens the database, and first makes it (0640, under the umask) if it is missing. Moves aside a file that
  // is no database of this schema or that this object has called damaged, with a line in the log. An error
  // does not name the file: path() does.
  [[nodiscard]] tl::expected<Opened, std::string> open();

  bool is_open() const { return database_.is_open(); }
  // True if the open database is still at its path, and no process has given it a write-ahead log.
  bool is_unchanged() const;
  // Closes a database that is not, with a line in the log. Destroy all statements first.
  void leave();
  // Waits until all committed steps are on the disk. Not within a transaction.
  [[nodiscard]] SqliteResult<void> sync();
  // The same if the last call was kSyncEvery ago.
  [[nodiscard]] SqliteResult<void> sync_if_due();

  // Call it only while the database is open.
  SqliteDatabase& database() { return database_; }
  // The path at the last open().
  const std::filesystem::path& path() const { return path_; }

  // Destroy all statements first.
  void close();
  // Closes after an error. `damaged`: the next open() moves the file aside.
  void close_after(const SqliteError& error);

 private:
  tl::expected<void, std::string> open_existing();
  tl::expected<void, std::string> create_file() const;
  SqliteResult<void> configure();
  SqliteResult<bool> is_ours();
  SqliteResult<void> create_schema();
  tl::expected<void, std::string> move_aside(const std::string& why) const;

  const Options options_;
  std::filesystem::path path_;
  SqliteDatabase database_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  std::chrono::steady_clock::time_point synced_{};
  std::string damage_;  // the reason why the next open() moves the file aside; empty: it does not
};

// Writes records into the SQLite database monitor_metrics.db of the run directory (FORMAT.md). Each step is
// one transaction: all its rows are kept, or none. Kept rows survive the end of the process.
class SqliteSink : public Sink {
 public:
  // `names` resolves the ids in the records; `rank` is the rank of all rows. Opens nothing yet. With
  // Resume::yes, skips rows of a step that the database already has; they are not lost. `scopes`: null if
  // unknown.
  SqliteSink(MetricsFile::Options file, std::shared_ptr<const NameTable> names, Rank rank,
             Resume resume = Resume::no, std::shared_ptr<const ScopeTable> scopes = nullptr);

  // The numbers of samples in the database of a directory: for all steps from `from` on, and for one step
  // before it. Changes no row. An error names the file.
  [[nodiscard]] static tl::expected<SamplesByStep, std::string> find_samples(
      const std::filesystem::path& directory, std::int64_t from);

  const char* name() const override { return "sqlite"; }
  void report_parts(OnPart on_part) override { on_part_ = std::move(on_part); }
  [[nodiscard]] tl::expected<void, SinkError> begin_revision(const Layout& layout) override;
  // A row whose target already has a row of that kind in that step is lost; the first one stays.
  [[nodiscard]] tl::expected<void, SinkError> write_step(Step step, const RecordBatch& records) override;
  [[nodiscard]] tl::expected<void, SinkError> flush() override;

 private:
  // The steps whose commit failed; it is unknown if they are kept.
  using Doubtful = std::vector<Step>;
  static constexpr std::size_t kMostDoubtful = 64;

  SqliteResult<std::uint64_t> write_or_look(Step step, const RecordBatch& records);
  SqliteResult<std::uint64_t> write_transaction(Step step, const RecordBatch& records);
  SqliteResult<std::uint64_t> write_rows(Step step, const RecordBatch& records);
  SqliteResult<void> open();
  SinkError make_error(const std::string& text, std::uint64_t rows_lost) const;
  SqliteResult<bool> is_kept(Step step);
  void close(const SqliteError& error);

  const Resume resume_;

  // Writer thread only.
  OnPart on_part_;  // null: parts are not reported
  MetricsFile file_;
  StepWriter rows_;                          // Keep after file_: its statements die first.
  std::optional<std::uint64_t> committing_;  // rows of the transaction whose commit was tried last
  Doubtful doubtful_;                        // counted as lost; the next transaction removes their rows
};

}  // namespace gradmon

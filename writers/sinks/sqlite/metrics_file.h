// SPDX-License-Identifier: Apache-2.0
// The file monitor_metrics.db of a run: opens it, creates it, and notices when it was deleted or replaced.
// One thread at a time.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "writers/sinks/sqlite/journal_choice.h"
#include "writers/sqlite/sqlite_database.h"

namespace gradmon {

class MetricsFile {
 public:
  struct Options {
    // Returns the directory, made if missing.
    std::function<std::filesystem::path()> directory;
    std::function<JournalMode(const std::filesystem::path& directory)> journal = journal_in;
    std::chrono::milliseconds busy_timeout{250};
  };
  // Call it before the first statement on a database with a write-ahead log.
  [[nodiscard]] static SqliteResult<void> avoid_mapped_index(SqliteDatabase& database);
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
  // True if the open database is still at its path, with its side files.
  bool is_unchanged() const;
  // Closes a database that is not, with a line in the log. A moved database is then complete. Destroy all
  // statements first.
  void leave();

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
  JournalMode journal_ = JournalMode::wal;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  std::string damage_;  // the reason why the next open() moves the file aside; empty: it does not
};

}  // namespace gradmon

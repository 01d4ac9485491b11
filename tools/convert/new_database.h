// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <tl/expected.hpp>

#include "writers/sqlite/sqlite_database.h"

namespace gradmon {

// A database of metrics made in one transaction, in a file unknown to other processes. After any failure, the
// file is useless. One thread.
class NewDatabase {
 public:
  // Makes the file (0640, under the umask) with the tables of metrics_schema.h. An error names the file.
  static tl::expected<NewDatabase, std::string> make(const std::filesystem::path& path,
                                                     std::int64_t partition_steps);

  SqliteDatabase& database() { return database_; }
  // "FILE: cause"
  std::string describe(const SqliteError& error) const { return path_.string() + ": " + error.text; }

  // Commits, closes and syncs the file. Destroy all statements first.
  [[nodiscard]] tl::expected<void, std::string> finish();

 private:
  NewDatabase(std::filesystem::path path, SqliteDatabase database)
      : path_(std::move(path)), database_(std::move(database)) {}

  std::filesystem::path path_;
  SqliteDatabase database_;
};

}  // namespace gradmon

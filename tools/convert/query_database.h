// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "tools/convert/rank_database.h"
#include "writers/sqlite/sqlite_database.h"

namespace gradmon {

// The database of one rank and run.
struct RankFile {
  std::filesystem::path path;
  int rank = -1;       // from the name of its directory; -1: not in the name
  std::string run_id;  // the same; "": not in the name
};

// The run of an output directory whose databases are read.
struct ChosenRun {
  std::filesystem::path output_dir;
  std::string run_id;
  std::size_t known = 0;  // the number of runs in the directory
};

struct RankFiles {
  std::vector<RankFile> files;  // by rank, then path
  std::vector<ChosenRun> runs;  // one for each output directory
};

// The databases at each place: a database file, the directory of a run and rank, or an output directory. From
// an output directory, takes the run `run_id`, by default the newest. The error names the place and the
// expected input.
tl::expected<RankFiles, std::string> find_rank_files(const std::vector<std::filesystem::path>& places,
                                                     const std::string& run_id);

// The databases of a query. Opens each when it is first read, and skips unreadable ones.
class RankDatabases {
 public:
  static constexpr std::size_t kMostOpen = 64;

  explicit RankDatabases(std::vector<RankFile> files) : files_(std::move(files)) {}
  RankDatabases(const RankDatabases&) = delete;
  RankDatabases& operator=(const RankDatabases&) = delete;

  const std::vector<RankFile>& files() const { return files_; }
  // Null if the database cannot be read. The pointer keeps it open.
  std::shared_ptr<RankDatabase> open(std::size_t index);
  // Skips the rest of an open database.
  void fail(std::size_t index, std::string error);

  // The reasons for skipping databases: one error for each.
  std::vector<std::string> errors() const;

 private:
  const std::vector<RankFile> files_;
  std::vector<std::shared_ptr<RankDatabase>> open_ =
      std::vector<std::shared_ptr<RankDatabase>>(files_.size());
  std::vector<std::string> errors_ = std::vector<std::string>(files_.size());  // empty: none
  std::size_t opened_ = 0;
};

// The rows of v_metrics that a user names without SQL.
struct ValueFilter {
  std::string metric = {};  // a name; "": all
  std::string target = {};  // a pattern with * and ?; "": all
  std::string op = {};      // a name; "": all
  StepRange steps = {};
  std::int64_t rank = -1;  // −1: all
};

// "100:200", "100:", ":200" or "100"; the error names the expected form.
tl::expected<StepRange, std::string> parse_steps(const std::string& text);

// The database in memory for `gradmonctl query`. It holds no values: its tables are FORMAT.md's views of the
// databases of all ranks.
class QueryDatabase {
 public:
  // The tables v_metrics, v_nonfinite, v_layer_step and v_files (rank, run_id, path).
  static tl::expected<QueryDatabase, std::string> make(std::shared_ptr<RankDatabases> databases);

  // Prepares an SQL statement that reads. The error has SQLite's message and the names of the tables.
  tl::expected<SqliteStatement, std::string> prepare(const std::string& sql);
  // Prepares the statement for these rows: by rank, metric, step and target. The value of a NaN is the text
  // "nan".
  tl::expected<SqliteStatement, std::string> prepare(const ValueFilter& filter);

 private:
  SqliteDatabase database_;
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// The database in memory for `gradmonctl query`. It holds no values: its tables are FORMAT.md's views of the
// databases of all ranks.
#pragma once

#include <memory>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "tools/gradmonctl/query/metric_values.h"
#include "writers/sqlite/sqlite_database.h"

namespace gradmon {

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

// SPDX-License-Identifier: Apache-2.0
// Reads the database of one rank, a page of rows at a time. No lock is held between pages, so a slow reader
// never holds up the rank that writes. One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "writers/sinks/metrics_schema.h"
#include "writers/sqlite/sqlite_database.h"

namespace gradmon {

struct StepRange {
  std::int64_t first = 0;
  std::int64_t last = std::numeric_limits<std::int64_t>::max();
};

// Shape and data type of a target's tensor in the steps from the first to the last. Empty: unknown.
struct TensorNote {
  std::int64_t first_step = std::numeric_limits<std::int64_t>::min();
  std::int64_t last_step = std::numeric_limits<std::int64_t>::max();
  std::string shape;
  std::string dtype;
};

// Reads the shapes and data types of one metric and rank, one at a time: a database may have any number of
// them. Destroy it before its RankDatabase. One thread at a time.
class TensorNotes {
 public:
  TensorNotes() = default;

  tl::expected<TensorNote, std::string> at(std::int64_t target_id, std::int64_t step);

 private:
  friend class RankDatabase;
  TensorNotes(std::filesystem::path path, SqliteStatement last, SqliteStatement next)
      : path_(std::move(path)), last_(std::move(last)), next_(std::move(next)) {}

  std::filesystem::path path_;
  SqliteStatement last_;  // finds the last row at or before a step
  SqliteStatement next_;  // finds the first row after that step
};

struct StoredTarget {
  std::string name;
  std::int64_t vpp_stage = 0;
  std::int64_t micro_step = 0;
};

class RankDatabase {
 public:
  static constexpr std::size_t kPageRows = 2048;

  // A row of a partition: the statistics of one target in one step.
  struct Row {
    std::int64_t rank = 0;
    std::int64_t step = 0;
    std::int64_t target_id = 0;
    std::int64_t nan_mask = 0;
    std::vector<std::optional<double>> values = {};  // of the metric's statistics; empty: null
  };
  // The begin of the next page of a partition.
  struct Place {
    std::int64_t rank = -1;
    bool in_rank = false;  // rows of `rank` may follow; false: the next page begins with the next rank
    std::int64_t step = -1;
    std::int64_t target_id = -1;
  };

  // Opens a database, even while a rank writes to it. The error names the file and the expected content. A
  // database whose rank has not made the tables yet has no metrics.
  static tl::expected<RankDatabase, std::string> open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<StoredMetric>& metrics() const { return metrics_; }

  // Fills `rows` with the next rows of a partition within the steps; leaves it empty at the end. `place` is
  // Place{} for the first page.
  tl::expected<void, std::string> read_page(const StoredMetric& metric, const std::string& partition,
                                            const StepRange& steps, Place& place, std::vector<Row>& rows);
  // Null if the target is not in the database.
  tl::expected<const StoredTarget*, std::string> target(std::int64_t id);
  tl::expected<TensorNotes, std::string> tensors(std::int64_t metric_id, std::int64_t rank);

 private:
  SqliteResult<bool> find_rank(const std::string& partition, Place& place);
  SqliteResult<void> read_rows(const StoredMetric& metric, const std::string& partition,
                               const StepRange& steps, Place& place, std::vector<Row>& rows);
  SqliteResult<void> read_targets();
  std::string describe(const SqliteError& error) const;

  std::filesystem::path path_;
  SqliteDatabase database_;
  std::vector<StoredMetric> metrics_;
  std::unordered_map<std::int64_t, StoredTarget> targets_;  // up to last_target_
  std::int64_t last_target_ = std::numeric_limits<std::int64_t>::min();
};

// The steps of a partition, from its name.
StepRange steps_of(const std::string& partition);

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <tl/expected.hpp>
#include <unordered_set>
#include <vector>

#include "tools/analyse/rows/row.h"
#include "tools/convert/conversion_run.h"
#include "tools/convert/new_database.h"
#include "tools/convert/rank_database.h"
#include "writers/sinks/step_writer.h"

namespace gradmon {

// The steps of each kind for which a rank has rows.
using StepsOfKinds = std::array<std::unordered_set<std::int64_t>, kKinds>;

// The copied extent of a rank. A value.
struct StartExtent {
  std::uint64_t rows = 0;
  std::int64_t first_step = -1;  // -1: no row
  std::int64_t last_step = -1;

  void add(const StartExtent& other) {
    rows += other.rows;
    if (first_step < 0 || (other.first_step >= 0 && other.first_step < first_step))
      first_step = other.first_step;
    last_step = std::max(last_step, other.last_step);
  }
};

// Writes the output of one start of the job in the directory of one rank: the rows of its database, then the
// rows of its CSV files that the database lacks. Later starts come first: skips steps of a kind that they
// have, and counts them in the meter. One thread.
class StartWriter {
 public:
  // `names`: the table of `scopes`; receives the names and shapes. `taken`: the steps of later starts. All
  // references must outlive this object.
  StartWriter(int rank, std::shared_ptr<NameTable> names, std::shared_ptr<const ScopeTable> scopes,
              const StepsOfKinds& taken, NewDatabase& database, ConversionMeter& meter, Problems& problems);

  // An error of the new database ends the merge. Unreadable input is a problem.
  [[nodiscard]] tl::expected<void, std::string> write(const std::filesystem::path& directory);

  const StartExtent& extent() const { return extent_; }
  const StepsOfKinds& steps() const { return steps_; }

 private:
  SqliteResult<void> write_database(const std::filesystem::path& file);
  // `bytes_of_partition`: the bytes that each partition adds to the meter.
  SqliteResult<void> write_metric(RankDatabase& from, const StoredMetric& metric,
                                  std::uint64_t bytes_of_partition);
  SqliteResult<void> write_files(const std::filesystem::path& directory);
  // `records`: of one kind, with ascending steps.
  SqliteResult<void> write_records(Kind kind, const std::vector<Record>& records);

  const int rank_;
  const StepsOfKinds& taken_;
  NewDatabase& database_;
  ConversionMeter& meter_;
  Problems& problems_;
  const std::shared_ptr<NameTable> names_;
  StepWriter writer_;
  std::vector<Record> of_step_;
  StepsOfKinds steps_;
  StartExtent extent_;
};

}  // namespace gradmon

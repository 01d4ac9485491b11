// SPDX-License-Identifier: Apache-2.0
// The rows of the last steps, for the flight recorder. Pure; one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "control/step.h"
#include "writers/queue/record.h"

namespace gradmon {

class FlightRing {
 public:
  // 40 bytes a row.
  static constexpr std::size_t kMostRows = std::size_t{1} << 20U;

  explicit FlightRing(std::size_t most_rows = kMostRows) : most_rows_(most_rows) {}

  // From now on keeps at most `steps` steps; 0: none.
  void keep_at_most(std::int64_t steps);

  // Adds the rows of a step; drops kinds other than grad_reduced and scalar. A row of grad_reduced gives norm
  // and nans, even if its mask has neither. Rows of the newest step join it. The oldest steps are removed if
  // there are too many steps, or more than `most_rows` rows; the newest step always stays.
  void add(Step step, const std::vector<Record>& records);

  // Marks all steps as due, to be written.
  void mark_all_due() { due_ = steps_.size(); }
  bool has_due() const { return due_ > 0; }
  // The oldest step. The ring must not be empty.
  Step oldest() const { return steps_.front().step; }
  // There must be a due step.
  Step newest_due() const { return steps_[due_ - 1].step; }
  // The rows of the oldest step that are of its first kind, sorted by sequence. The only statistics are norm
  // and nans.
  std::vector<Record> oldest_rows() const;
  // Removes the rows that oldest_rows() returns, and the step if it has no other rows.
  void remove_oldest_rows();

  std::size_t steps() const { return steps_.size(); }
  std::size_t rows() const { return rows_; }
  // Rows that were due and were removed to make room.
  std::uint64_t lost() const { return lost_; }

 private:
  struct Row {
    std::uint64_t sequence = 0;
    std::array<double, 2> values{};  // norm and nans, or samples and value
    std::uint32_t target = 0;
    std::uint32_t shape = 0;
    Kind kind = Kind::grad_reduced;
    DType dtype = DType::unknown;
    std::uint8_t valid = 0;  // bit i: values[i]
  };
  static_assert(sizeof(Row) == 40);
  struct KeptStep {
    Step step;
    std::vector<Row> rows;  // sorted by kind and sequence
  };

  static Row row_of(const Record& record);
  std::size_t rows_of_first_kind() const;
  void make_room();
  void drop_oldest_step();
  void drop_newest_step();

  const std::size_t most_rows_;
  std::size_t most_steps_ = 0;
  std::deque<KeptStep> steps_;  // oldest first
  std::size_t due_ = 0;         // number of the oldest steps that are due
  std::size_t rows_ = 0;
  std::uint64_t lost_ = 0;
  std::vector<Row> spare_;  // an empty vector with capacity, for the next step
};

}  // namespace gradmon

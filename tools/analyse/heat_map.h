// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gradmon {

// Values over layers and steps. A value.
struct HeatMap {
  // Marks a cell without a value. Cells are magnitudes, so others are at least 0, infinite or NaN.
  static constexpr float kMissing = -1;

  std::string title;
  std::vector<std::string> rows;          // labels, from the top
  std::vector<std::int64_t> first_steps;  // of each column, ascending
  std::int64_t last_step = 0;
  std::vector<float> cells;  // row by row

  std::size_t columns() const { return first_steps.size(); }
  float cell(std::size_t row, std::size_t column) const { return cells[row * columns() + column]; }
};

// Collects values for a HeatMap of a bounded size. If several values fall into one cell, the cell shows the
// largest magnitude; NaN counts as larger than all others. One thread.
class HeatMapBuilder {
 public:
  // At least 2 columns and 1 row.
  HeatMapBuilder(std::size_t most_rows, std::size_t most_columns);

  // `row`: from 0; all added rows stay in memory. `step`: at least 0, in any order.
  void add(std::size_t row, std::int64_t step, double value);

  // Uses fewer columns from now on, at least 2: less memory for more rows.
  void limit_columns(std::size_t most_columns);

  // `labels`: of all rows. If rows exceed the limit, draws neighbours as one row, with the label of the
  // first. Skips columns without a value.
  HeatMap build(const std::vector<std::string>& labels) const;

 private:
  using Cells = std::vector<float>;

  void make_room(std::int64_t step);
  // Moves all cells to columns of `2^doublings` times as many steps; the first column is `base`.
  void move_cells(int doublings, std::int64_t base);
  std::vector<std::size_t> used_columns() const;

  const std::size_t most_rows_;
  std::size_t most_columns_;
  std::vector<Cells> rows_;  // empty, or one cell for each column
  int width_log_ = 0;        // a column has 2^width_log_ steps
  std::int64_t base_ = 0;    // step / width of column 0
  std::int64_t least_ = -1;  // step / width of the first and last value; -1: no value
  std::int64_t most_ = -1;
  std::int64_t last_step_ = 0;
};

}  // namespace gradmon

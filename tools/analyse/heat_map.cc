// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/heat_map.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace gradmon {
namespace {

bool has_value(float cell) { return cell != HeatMap::kMissing; }

void merge(float& cell, float value) {
  if (std::isnan(cell)) return;
  if (std::isnan(value) || value > cell) cell = value;
}

float magnitude_of(double value) {
  const double size = std::fabs(value);
  // A number beyond the range of float is not infinite.
  return std::isfinite(size) ? static_cast<float>(std::min(size, double{std::numeric_limits<float>::max()}))
                             : static_cast<float>(size);
}

}  // namespace

HeatMapBuilder::HeatMapBuilder(std::size_t most_rows, std::size_t most_columns)
    : most_rows_(most_rows), most_columns_(most_columns) {}

void HeatMapBuilder::move_cells(int doublings, std::int64_t base) {
  for (Cells& row : rows_) {
    if (row.empty()) continue;
    Cells moved(most_columns_, HeatMap::kMissing);
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (has_value(row[i]))
        merge(moved[static_cast<std::size_t>(((base_ + static_cast<std::int64_t>(i)) >> doublings) - base)],
              row[i]);
    }
    row = std::move(moved);
  }
  width_log_ += doublings;
  base_ = base;
}

void HeatMapBuilder::make_room(std::int64_t step) {
  const auto columns = static_cast<std::int64_t>(most_columns_);
  const std::int64_t column = step >> width_log_;
  if (least_ < 0) least_ = most_ = base_ = column;
  std::int64_t least = std::min(least_, column);
  std::int64_t most = std::max(most_, column);
  int doublings = 0;
  for (; most - least >= columns; ++doublings) {
    least >>= 1;
    most >>= 1;
  }
  // A step below all others puts all free columns below it: more such steps may follow.
  if (doublings > 0 || least < base_ || most - base_ >= columns)
    move_cells(doublings, column < least_ ? std::max<std::int64_t>(0, most - columns + 1) : least);
  least_ = least;
  most_ = most;
}

void HeatMapBuilder::limit_columns(std::size_t most_columns) {
  most_columns_ = most_columns;
  const auto columns = static_cast<std::int64_t>(most_columns);
  int doublings = 0;
  while ((most_ >> doublings) - (least_ >> doublings) >= columns) ++doublings;
  least_ >>= doublings;
  most_ >>= doublings;
  move_cells(doublings, std::max<std::int64_t>(0, least_));
}

void HeatMapBuilder::add(std::size_t row, std::int64_t step, double value) {
  make_room(step);
  last_step_ = std::max(last_step_, step);
  if (row >= rows_.size()) rows_.resize(row + 1);
  if (rows_[row].empty()) rows_[row].assign(most_columns_, HeatMap::kMissing);
  merge(rows_[row][static_cast<std::size_t>((step >> width_log_) - base_)], magnitude_of(value));
}

std::vector<std::size_t> HeatMapBuilder::used_columns() const {
  std::vector<std::size_t> used;
  for (std::size_t column = 0; column < most_columns_; ++column) {
    if (std::any_of(rows_.begin(), rows_.end(),
                    [&](const Cells& row) { return !row.empty() && has_value(row[column]); }))
      used.push_back(column);
  }
  return used;
}

HeatMap HeatMapBuilder::build(const std::vector<std::string>& labels) const {
  HeatMap map;
  const std::vector<std::size_t> used = used_columns();
  for (const std::size_t column : used)
    map.first_steps.push_back((base_ + static_cast<std::int64_t>(column)) << width_log_);
  map.last_step = last_step_;
  std::vector<std::size_t> shown;
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    if (!rows_[row].empty()) shown.push_back(row);
  }
  const std::size_t together = (shown.size() + most_rows_ - 1) / most_rows_;
  for (std::size_t i = 0; i < shown.size(); ++i) {
    if (i % together == 0) {
      map.rows.push_back(labels[shown[i]]);
      map.cells.resize(map.cells.size() + used.size(), HeatMap::kMissing);
    }
    float* const cells = map.cells.data() + (map.rows.size() - 1) * used.size();
    for (std::size_t column = 0; column < used.size(); ++column) {
      if (has_value(rows_[shown[i]][used[column]])) merge(cells[column], rows_[shown[i]][used[column]]);
    }
  }
  return map;
}

}  // namespace gradmon

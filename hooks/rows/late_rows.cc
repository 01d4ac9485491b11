// SPDX-License-Identifier: Apache-2.0
#include "hooks/rows/late_rows.h"

#include <algorithm>
#include <exception>

#include "control/log.h"
#include "hooks/rows/folded_reading.h"

namespace gradmon {

void MissingRows::count(const std::string& name, const std::string& why) noexcept {
  if (counted_.fetch_add(1, std::memory_order_relaxed) == 0)
    log_warn(name + ": no row: " + why + ". Further missing rows are not logged.");
}

void unscale(std::array<double, kValues>& values, double scale) {
  if (scale == 1) return;
  for (std::size_t op = 0; op < kOps; ++op) {
    if (kStatistics[op].scales) values[op] /= scale;
  }
}

bool all_zeros(const DeviceScalars::Values& statistics) {
  const auto is_zero = [&](Op op) { return statistics[static_cast<std::size_t>(op)] == 0; };
  return is_zero(Op::min) && is_zero(Op::max);
}

void LateRows::mark(Record& record, std::size_t row) {
  record.mask = static_cast<ValueMask>(record.mask | kLate);
  record.values[0] = static_cast<double>(row);
}

bool LateRows::ready() noexcept {
  try {
    return fetched_ || batch_.ready();
  } catch (const std::exception&) {
    return true;  // The device has failed. complete() reports the failure.
  }
}

void LateRows::fetch() noexcept {
  fetched_ = true;
  try {
    values_ = batch_.values();
  } catch (const std::exception& error) {
    log_error(std::string("a step's rows are lost: ") + error.what());
  }
}

bool LateRows::is_row(const LateRow& row) const {
  const auto only_zeros = [&](std::size_t place) { return values_[place] && all_zeros(*values_[place]); };
  return row.unless_zeros.empty() ||
         !std::all_of(row.unless_zeros.begin(), row.unless_zeros.end(), only_zeros);
}

std::optional<DeviceScalars::Values> LateRows::values_of(const LateRow& row) const {
  if (row.numbers) return values_[*row.numbers];
  std::vector<Reading> parts = row.parts;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!row.part_numbers[i]) continue;
    if (!values_[*row.part_numbers[i]]) return std::nullopt;
    parts[i].stats.values = *values_[*row.part_numbers[i]];
  }
  return folded(parts).stats.values;
}

bool LateRows::complete(Record& record) noexcept {
  if (!fetched_) fetch();
  const LateRow& row = rows_[static_cast<std::size_t>(record.values[0])];
  try {
    const auto values = values_.empty() ? std::nullopt : values_of(row);
    if (!values) {
      missing_->count(row.name, values_.empty() ? "the device has failed" : row.why_absent);
      return false;
    }
    record.mask = static_cast<ValueMask>(record.mask & ~kLate);
    record.values[0] = row.first;
    for (std::size_t k = 0; k < row.count; ++k) record.values[row.places[k]] = (*values)[k];
    unscale(record.values, row.scale);
    return is_row(row);
  } catch (const std::exception& error) {
    missing_->count(row.name, error.what());
    return false;
  }
}

}  // namespace gradmon

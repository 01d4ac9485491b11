// SPDX-License-Identifier: Apache-2.0
#include "writers/flight/flight_ring.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace gradmon {
namespace {

// The two values that a row keeps: indices into Record::values.
std::array<std::size_t, 2> places_of(Kind kind) {
  if (kind == Kind::scalar)
    return {static_cast<std::size_t>(Column::samples), static_cast<std::size_t>(Column::value)};
  return {static_cast<std::size_t>(Op::norm), static_cast<std::size_t>(Op::nans)};
}

}  // namespace

void FlightRing::keep_at_most(std::int64_t steps) {
  most_steps_ = static_cast<std::size_t>(std::max<std::int64_t>(steps, 0));
  make_room();
  if (most_steps_ == 0) spare_ = {};
}

FlightRing::Row FlightRing::row_of(const Record& record) {
  Row row{record.sequence, {}, record.target, record.shape, record.kind, record.dtype, 0};
  const auto places = places_of(record.kind);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const bool valid = record.kind == Kind::grad_reduced || (record.mask >> places[i] & 1U) != 0;
    if (!valid) continue;
    row.values[i] = record.values[places[i]];
    row.valid = static_cast<std::uint8_t>(row.valid | 1U << i);
  }
  return row;
}

void FlightRing::add(Step step, const std::vector<Record>& records) {
  if (most_steps_ == 0) return;
  const bool joins = !steps_.empty() && steps_.back().step == step;
  if (!joins) {
    steps_.push_back({step, std::move(spare_)});
    spare_ = {};
  }
  std::vector<Row>& rows = steps_.back().rows;
  const std::size_t before = rows.size();
  for (const Record& record : records) {
    if (record.kind != Kind::grad_reduced && record.kind != Kind::scalar) continue;
    if (const Row row = row_of(record); row.valid != 0) rows.push_back(row);
  }
  rows_ += rows.size() - before;
  const auto comes_first = [](const Row& a, const Row& b) {
    return std::tie(a.kind, a.sequence) < std::tie(b.kind, b.sequence);
  };
  if (!std::is_sorted(rows.begin(), rows.end(), comes_first))
    std::stable_sort(rows.begin(), rows.end(), comes_first);
  if (rows.empty()) drop_newest_step();
  make_room();
}

void FlightRing::drop_newest_step() {
  spare_.swap(steps_.back().rows);
  steps_.pop_back();
  due_ = std::min(due_, steps_.size());
}

void FlightRing::make_room() {
  while (steps_.size() > most_steps_ || (rows_ > most_rows_ && steps_.size() > 1)) drop_oldest_step();
}

void FlightRing::drop_oldest_step() {
  KeptStep& oldest = steps_.front();
  rows_ -= oldest.rows.size();
  if (due_ > 0) {
    lost_ += oldest.rows.size();
    --due_;
  }
  oldest.rows.clear();
  if (spare_.capacity() < oldest.rows.capacity()) spare_.swap(oldest.rows);
  steps_.pop_front();
}

std::size_t FlightRing::rows_of_first_kind() const {
  const std::vector<Row>& rows = steps_.front().rows;
  const auto other = [&](const Row& row) { return row.kind != rows.front().kind; };
  return static_cast<std::size_t>(std::find_if(rows.begin(), rows.end(), other) - rows.begin());
}

std::vector<Record> FlightRing::oldest_rows() const {
  const KeptStep& oldest = steps_.front();
  std::vector<Record> records(rows_of_first_kind());
  for (std::size_t at = 0; at < records.size(); ++at) {
    const Row& row = oldest.rows[at];
    Record& record = records[at];
    record.step = oldest.step.value;
    record.sequence = row.sequence;
    record.target = row.target;
    record.shape = row.shape;
    record.kind = row.kind;
    record.dtype = row.dtype;
    const auto places = places_of(row.kind);
    for (std::size_t i = 0; i < places.size(); ++i) {
      if ((row.valid >> i & 1U) == 0) continue;
      record.values[places[i]] = row.values[i];
      record.mask = static_cast<ValueMask>(record.mask | 1U << places[i]);
    }
  }
  return records;
}

void FlightRing::remove_oldest_rows() {
  std::vector<Row>& rows = steps_.front().rows;
  const std::size_t count = rows_of_first_kind();
  rows.erase(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(count));
  rows_ -= count;
  if (!rows.empty()) return;
  if (due_ > 0) --due_;
  steps_.pop_front();
}

}  // namespace gradmon

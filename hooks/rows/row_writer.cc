// SPDX-License-Identifier: Apache-2.0
#include "hooks/rows/row_writer.h"

#include <algorithm>
#include <numeric>

#include "control/log.h"
#include "hooks/stats/readable.h"

namespace gradmon {

std::string shape_text(const std::vector<std::int64_t>& sizes) {
  std::string text = "[";
  for (std::size_t i = 0; i < sizes.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
  return text + "]";
}

namespace {

constexpr std::size_t kMostKnownShapes = std::size_t{1} << 16;

template <typename Values>
void unscale(Values& values, double scale) {
  if (scale == 1) return;
  for (std::size_t op = 0; op < kOps; ++op) {
    if (kStatistics[op].scales) values[op] /= scale;
  }
}

}  // namespace

RowWriter::RowWriter(RecordStream& stream, Revision revision, ValueMask ops)
    : stream_(stream), revision_(revision), ops_(ops) {}

void RowWriter::begin_step(Step step) {
  step_ = step;
  held_.clear();
  waiting_.clear();
  batch_.clear();
}

void RowWriter::end_step() {
  if (waiting_.empty()) return;
  const auto values = batch_.resolve();
  std::vector<bool> absent(held_.size(), false);
  for (std::size_t i = 0; i < waiting_.size(); ++i) {
    const Waiting& waiting = waiting_[i];
    absent[waiting.row] = !values[i];
    if (!values[i]) {
      count_not_applicable(held_[waiting.row].kind, waiting.name, waiting.why_absent);
      continue;
    }
    for (std::size_t k = 0; k < waiting.count; ++k)
      held_[waiting.row].values[waiting.places[k]] = (*values[i])[k];
    unscale(held_[waiting.row].values, waiting.scale);
  }
  for (std::size_t i = 0; i < held_.size(); ++i) {
    if (!absent[i]) enqueue_record(held_[i]);
  }
  held_.clear();
  waiting_.clear();
}

void RowWriter::write(const RowKey& key, const Reading& reading, const std::string& name) {
  if (!reading.has_value || reading.stats.outcome == TensorStats::Outcome::empty) return;
  if (reading.stats.outcome == TensorStats::Outcome::not_applicable) {
    return count_not_applicable(key.kind, name, reading.why.empty() ? kWithoutMemory : reading.why);
  }
  Record record = record_of(key);
  record.read_at = reading.read_at;
  std::copy(reading.stats.values.begin(), reading.stats.values.end(), record.values.begin());
  unscale(record.values, reading.scale);
  record.shape = shape_id(reading.sizes);
  record.dtype = reading.stats.dtype;
  record.mask = ops_;
  if (reading.scope) stream_.note_scope(key.kind, key.target, reading.scope);
  if (reading.pending) {
    batch_.add(reading.pending);
    Waiting waiting{held_.size(), reading.scale, {}, kOps, name, reading.pending->why_absent};
    std::iota(waiting.places.begin(), waiting.places.end(), std::uint8_t{0});
    waiting_.push_back(waiting);
  }
  push(record);
}

void RowWriter::write(const RowKey& key, std::initializer_list<ColumnValue> values,
                      const PendingScalars& pending, const std::string& name) {
  Record record = record_of(key);
  record.read_at = key.read_at != 0 ? key.read_at : reading_time();
  Waiting waiting{held_.size(), 1, {}, 0, name, pending ? pending->why_absent : ""};
  for (const ColumnValue& value : values) {
    const auto place = static_cast<std::uint8_t>(value.column);
    record.values[place] = value.value;
    record.mask = static_cast<ValueMask>(record.mask | bit_of(value.column));
    waiting.places[waiting.count++] = place;
  }
  if (pending) {
    batch_.add(pending);
    waiting_.push_back(waiting);
  }
  push(record);
}

void RowWriter::write_histogram(Kind kind, std::uint32_t target, const BinCounts& counts) {
  Histogram histogram;
  histogram.step = step_.value;
  histogram.revision = revision_.value;
  histogram.counts = counts;
  histogram.target = target;
  histogram.kind = kind;
  stream_.push(histogram);  // the lane counts what it drops
}

void RowWriter::count_not_applicable(Kind kind, const std::string& name, const std::string& why) {
  stream_.note_missing_row(kind);
  if (not_applicable_++ == 0) log_warn(name + ": no row: " + why + ". Further missing rows are not logged.");
}

Record RowWriter::record_of(const RowKey& key) const {
  Record record;
  record.step = step_.value;
  record.revision = revision_.value;
  record.sequence = key.sequence;
  record.target = key.target;
  record.micro_step = key.micro_step;
  record.kind = key.kind;
  return record;
}

void RowWriter::push(const Record& record) {
  waiting_.empty() ? enqueue_record(record) : held_.push_back(record);
}

void RowWriter::enqueue_record(const Record& record) {
  stream_.push(record);  // the queue counts what it drops
}

std::uint32_t RowWriter::shape_id(const std::vector<std::int64_t>& sizes) {
  const auto known = shapes_.find(sizes);
  if (known != shapes_.end()) return known->second;
  if (shapes_.size() >= kMostKnownShapes) shapes_.clear();
  return shapes_.emplace(sizes, stream_.shape_id(shape_text(sizes))).first->second;
}

void write_in_order(RowWriter& rows, Kind kind, const std::vector<WatchedTensor>& watched,
                    const std::vector<Reading>& readings) {
  for (std::size_t i = 0; i < watched.size(); ++i) {
    rows.write({kind, watched[i].target, watched[i].index}, readings[i], watched[i].name);
  }
}

}  // namespace gradmon

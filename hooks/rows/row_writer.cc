// SPDX-License-Identifier: Apache-2.0
#include "hooks/rows/row_writer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "hooks/rows/folded_reading.h"
#include "hooks/stats/readable.h"

namespace gradmon {

std::string shape_text(at::IntArrayRef sizes) {
  std::string text = "[";
  for (std::size_t i = 0; i < sizes.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
  return text + "]";
}

namespace {

constexpr std::size_t kMostKnownShapes = std::size_t{1} << 16;
constexpr std::uint64_t kAfterTheTensors = std::uint64_t{1} << 48U;  // sequence of the first scale's row

// All statistics of the record come later.
LateRow statistics_row(const Record& record, const std::string& name) {
  LateRow late;
  late.first = record.values[0];
  late.name = name;
  late.count = kOps;
  std::iota(late.places.begin(), late.places.end(), std::uint8_t{0});
  return late;
}

}  // namespace

RowWriter::RowWriter(RecordStream& stream, Revision revision, ValueMask ops)
    : stream_(stream), revision_(revision), ops_(ops) {}

void RowWriter::begin_step(Step step) {
  step_ = step;
  held_.clear();
  held_late_.clear();
  late_.clear();
  batch_.clear();
  places_.clear();
}

void RowWriter::end_step() {
  if (late_.empty()) return;
  for (std::size_t i = 0; i < held_late_.size(); ++i) LateRows::mark(held_[held_late_[i]], i);
  if (const std::string why = batch_.why_not_now(); !why.empty()) return leave_out_late(why);
  const auto late = std::make_shared<LateRows>(batch_.fetch(), std::exchange(late_, {}), missing_);
  places_.clear();
  if (!stream_.take_late(late)) complete_here(*late);
  for (const Record& record : held_) enqueue_record(record);
  held_.clear();
  held_late_.clear();
}

void RowWriter::leave_out_late(const std::string& why) {
  for (std::size_t i = 0; i < held_.size(); ++i) {
    if ((held_[i].mask & kLate) == 0) {
      enqueue_record(held_[i]);
    } else {
      count_not_applicable(held_[i].kind, held_[i].target,
                           late_[static_cast<std::size_t>(held_[i].values[0])].name, why);
    }
  }
  begin_step(step_);
}

// Waits for the devices.
void RowWriter::complete_here(LateRows& late) {
  const auto without_values = [&](Record& record) {
    if ((record.mask & kLate) == 0 || late.complete(record)) return false;
    if ((record.mask & kLate) != 0) stream_.note_missing_row(record.kind);
    return true;
  };
  held_.erase(std::remove_if(held_.begin(), held_.end(), without_values), held_.end());
}

void RowWriter::write(const RowKey& key, const Reading& reading, const std::string& name,
                      const UnlessZeros& unless_zeros) {
  if (!has_row(key, reading, name)) return;
  const Record record = record_of(key, reading);
  if (reading.pending || !unless_zeros.empty()) {
    LateRow late = statistics_row(record, name);
    if (reading.pending) {
      late.scale = reading.scale;
    } else {
      late.count = 0;  // The record has its values.
    }
    hold_for(std::move(late), reading.pending, unless_zeros);
  }
  push(record);
  const std::uint32_t target = reading.of_scale ? stream_.scale_target_id(key.target) : 0;
  if (target == 0) return;
  RowKey of_scale = key;
  of_scale.target = target;
  of_scale.sequence += kAfterTheTensors;
  write(of_scale, *reading.of_scale, name + ".scale", unless_zeros);
}

void RowWriter::write_folded(const RowKey& key, const std::vector<Reading>& parts, const std::string& name) {
  Reading whole = folded(parts);
  whole.pending.reset();
  if (!has_row(key, whole, name)) return;
  const Record record = record_of(key, whole);
  if (std::any_of(parts.begin(), parts.end(), [](const Reading& part) { return part.pending != nullptr; })) {
    LateRow late = statistics_row(record, name);
    late.parts = parts;
    for (const Reading& part : parts)
      late.part_numbers.push_back(part.pending ? std::optional(place_of(part.pending)) : std::nullopt);
    hold_for(std::move(late), nullptr, {});
  }
  push(record);
}

void RowWriter::write(const RowKey& key, std::initializer_list<ColumnValue> values,
                      const PendingScalars& pending, const std::string& name,
                      const UnlessZeros& unless_zeros) {
  Record record = record_of(key);
  record.read_at = key.read_at != 0 ? key.read_at : reading_time();
  LateRow late;
  late.name = name;
  for (const ColumnValue& value : values) {
    const auto place = static_cast<std::uint8_t>(value.column);
    record.values[place] = value.value;
    record.mask = static_cast<ValueMask>(record.mask | bit_of(value.column));
    if (pending) late.places[late.count++] = place;
  }
  late.first = record.values[0];
  if (pending || !unless_zeros.empty()) hold_for(std::move(late), pending, unless_zeros);
  push(record);
}

// Holds back the record that is pushed next, and all after it.
void RowWriter::hold_for(LateRow late, const PendingScalars& pending, const UnlessZeros& unless_zeros) {
  if (pending) {
    late.numbers = place_of(pending);
    late.why_absent = pending->why_absent;
  }
  for (const PendingScalars& numbers : unless_zeros) late.unless_zeros.push_back(place_of(numbers));
  late_.push_back(std::move(late));
  held_late_.push_back(held_.size());
}

std::size_t RowWriter::place_of(const PendingScalars& numbers) {
  const auto [known, fresh] = places_.try_emplace(numbers.get(), places_.size());
  if (fresh) batch_.add(numbers);
  return known->second;
}

void RowWriter::write_histogram(Kind kind, std::uint32_t target, const BinCounts& counts) {
  Histogram histogram;
  histogram.step = step_.value;
  histogram.revision = revision_.value;
  histogram.counts = counts;
  histogram.target = target;
  histogram.kind = kind;
  stream_.push(histogram);  // the lane counts dropped ones
}

void RowWriter::count_not_applicable(Kind kind, std::optional<std::uint32_t> target, const std::string& name,
                                     const std::string& why) {
  stream_.note_missing_row(kind);
  if (target) note_reason(kind, *target, why);
  missing_->count(name, why);
}

void RowWriter::note_reason(Kind kind, std::uint32_t target, const std::string& why) {
  stream_.note_reason(kind, target, why);
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

// Counts a reading that is not applicable.
bool RowWriter::has_row(const RowKey& key, const Reading& reading, const std::string& name) {
  if (!reading.has_value || reading.stats.outcome == TensorStats::Outcome::empty) return false;
  if (reading.stats.outcome != TensorStats::Outcome::not_applicable) return true;
  count_not_applicable(key.kind, key.target, name, reading.why.empty() ? kWithoutMemory : reading.why);
  return false;
}

Record RowWriter::record_of(const RowKey& key, const Reading& reading) {
  Record record = record_of(key);
  record.read_at = reading.read_at;
  std::copy(reading.stats.values.begin(), reading.stats.values.end(), record.values.begin());
  unscale(record.values, reading.scale);
  record.shape = shape_id(reading.sizes);
  record.dtype = reading.stats.dtype;
  record.mask = ops_;
  if (reading.scope) stream_.note_scope(key.kind, key.target, reading.scope);
  return record;
}

void RowWriter::push(const Record& record) {
  late_.empty() ? enqueue_record(record) : held_.push_back(record);
}

void RowWriter::enqueue_record(const Record& record) {
  stream_.push(record);  // the queue counts dropped ones
}

std::uint32_t RowWriter::shape_id(const c10::DimVector& sizes) {
  const auto known = shapes_.find(sizes);
  if (known != shapes_.end()) return known->second;
  if (shapes_.size() >= kMostKnownShapes) shapes_.clear();
  return shapes_.emplace(sizes, stream_.shape_id(shape_text(sizes))).first->second;
}

void write_in_order(RowWriter& rows, Kind kind, const std::vector<WatchedTensor>& watched,
                    const std::vector<Reading>& readings,
                    const std::function<UnlessZeros(std::size_t)>& unless_zeros) {
  for (std::size_t i = 0; i < watched.size(); ++i) {
    rows.write({kind, watched[i].target, watched[i].index}, readings[i], watched[i].name,
               unless_zeros && readings[i].has_value ? unless_zeros(i) : UnlessZeros{});
  }
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "hooks/rows/row_writer.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include "control/log.h"
#include "hooks/rows/read_ahead.h"
#include "hooks/stats/readable.h"

namespace gradmon {

bool StepLimit::reached(std::size_t count) noexcept {
  if (count < most_) return false;
  if (logged_.exchange(true, std::memory_order_relaxed)) return true;
  try {
    log_warn("a step has more than " + std::to_string(most_) + " " + things_ +
             "; the rest is left out. Does no watched optimizer step any more? Then watch() the one that "
             "does, or call step() at the end of each iteration");
  } catch (const std::exception&) {  // Out of memory: the limit holds without the line.
  }
  return true;
}

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

std::string shape_text(at::IntArrayRef sizes) {
  std::string text = "[";
  for (std::size_t i = 0; i < sizes.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
  return text + "]";
}

namespace {

constexpr std::size_t kMostKnownShapes = std::size_t{1} << 16;
constexpr ValueMask kWithoutRows = bit_of(Op::norm) | bit_of(Op::nans);  // for norms and the flight recorder
constexpr std::uint64_t kAfterTheTensors = std::uint64_t{1} << 48U;      // sequence of the first scale's row

void mark_sample(Record& record, const Reading& reading) {
  const auto set = [&](Column column, double value) {
    record.values[static_cast<std::size_t>(column)] = value;
  };
  set(Column::sampled, reading.stats.sample.share);
  set(Column::mean_se, reading.stats.sample.mean_se / reading.scale);
  set(Column::norm_se, reading.stats.sample.norm_se / reading.scale);
  record.mask = static_cast<ValueMask>(record.mask | kSampleMarks);
}

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

void RowWriter::begin_step(Step step, Readers active) {
  step_ = step;
  active_ = active;
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
  const bool for_norms = std::any_of(held_late_.begin(), held_late_.end(), [this](std::size_t held) {
    return (held_[held].readers & kForNorms) != 0;
  });
  if (for_norms || !stream_.take_late(late)) complete_here(*late);
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
  begin_step(step_, active_);
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
  if (!reading.of_scale || (key.readers & kForRows) == 0) return;
  const std::uint32_t target = stream_.scale_target_id(key.target);
  if (target == 0) return;
  RowKey of_scale = key;
  of_scale.readers = kForRows;  // The norm of a scale is not the model's.
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
  static_cast<RowKey&>(record) = key;
  return record;
}

// Counts a reading that is not applicable.
bool RowWriter::has_row(const RowKey& key, const Reading& reading, const std::string& name) {
  if (!reading.has_value || reading.stats.outcome == TensorStats::Outcome::empty) return false;
  if (reading.stats.outcome != TensorStats::Outcome::not_applicable) return true;
  const auto target = (key.readers & kForRows) != 0 ? std::optional(key.target) : std::nullopt;
  count_not_applicable(key.kind, target, name, reading.why.empty() ? kWithoutMemory : reading.why);
  return false;
}

Record RowWriter::record_of(const RowKey& key, const Reading& reading) {
  Record record = record_of(key);
  record.read_at = reading.read_at;
  std::copy(reading.stats.values.begin(), reading.stats.values.end(), record.values.begin());
  unscale(record.values, reading.scale);
  record.shape = shape_id(reading.sizes);
  record.dtype = reading.stats.dtype;
  record.mask = (key.readers & (kForRows | kForReplicas)) != 0 ? ops_ : kWithoutRows;
  if (reading.stats.sample.share > 0) mark_sample(record, reading);
  if (reading.scope && (key.readers & kForRows) != 0) stream_.note_scope(key.kind, key.target, reading.scope);
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
    if (i + 4 < watched.size()) ask_for(&readings[i + 4], sizeof(Reading));
    const Readers readers = watched[i].readers_for(kind) & rows.active();
    rows.write({kind, watched[i].target, watched[i].index, 0, 0, readers}, readings[i], watched[i].name,
               unless_zeros && readings[i].has_value ? unless_zeros(i) : UnlessZeros{});
  }
}

}  // namespace gradmon

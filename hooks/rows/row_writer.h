// SPDX-License-Identifier: Apache-2.0
// Turns readings into records.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "control/step.h"
#include "hooks/device/device_fetch.h"
#include "hooks/rows/reading.h"
#include "hooks/rows/record_stream.h"
#include "writers/queue/record.h"

namespace gradmon {

// Limits the memory that the hooks keep for one step, because a step never ends if the program stops calling
// the optimizer that ends it. Any thread.
class StepLimit {
 public:
  // `most`: items in a step. `things`: the items' name in the log, a plural; must outlive this.
  StepLimit(std::size_t most, const char* things) : most_(most), things_(things) {}

  // Returns true if a step that has `count` items is full. Logs it the first time.
  bool reached(std::size_t count) noexcept;

 private:
  const std::size_t most_;
  const char* const things_;
  std::atomic<bool> logged_{false};
};

// Counts the rows that are missing because their values cannot be had, and logs the first. Any thread.
class MissingRows {
 public:
  void count(const std::string& name, const std::string& why) noexcept;
  std::uint64_t counted() const noexcept { return counted_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> counted_{0};
};

// The sources of one record's values, and the condition under which it is a row. `numbers` and `unless_zeros`
// are places in the batch.
struct LateRow {
  std::optional<std::size_t> numbers;       // unset: the record has its values; `first` is the first one
  double first = 0;                         // Record::values[0]
  double scale = 1;                         // factor that the numbers contain
  std::array<std::uint8_t, kOps> places{};  // indices in Record::values, in the order of the numbers
  std::size_t count = 0;                    // size of `places`
  std::vector<Reading> parts;               // not empty: the values are those of all parts, folded
  std::vector<std::optional<std::size_t>> part_numbers;  // of each part; unset: the part has its values
  std::vector<std::size_t> unless_zeros;  // not empty: no row if all these tensors hold only zeros
  std::string name;
  const char* why_absent = "";
};

class LateRows : public LateValues {
 public:
  LateRows(FetchedBatch batch, std::vector<LateRow> rows, std::shared_ptr<MissingRows> missing)
      : batch_(std::move(batch)), rows_(std::move(rows)), missing_(std::move(missing)) {}

  // Marks a record that is not complete with its row's index.
  static void mark(Record& record, std::size_t row);

  bool ready() noexcept override;
  bool complete(Record& record) noexcept override;

 private:
  void fetch() noexcept;
  bool is_row(const LateRow& row) const;
  std::optional<DeviceScalars::Values> values_of(const LateRow& row) const;

  const FetchedBatch batch_;
  const std::vector<LateRow> rows_;
  const std::shared_ptr<MissingRows> missing_;
  bool fetched_ = false;
  std::vector<std::optional<DeviceScalars::Values>> values_;  // of the batch; empty: the device failed
};

// True if the statistics are those of zeros alone.
bool all_zeros(const DeviceScalars::Values& statistics);

// Divides the factor out of the statistics that grow with the tensor's values.
void unscale(std::array<double, kValues>& values, double scale);

// The shape as torch prints it: "[16, 8]", "[4]", "[]".
std::string shape_text(at::IntArrayRef sizes);

struct ColumnValue {
  Column column;
  double value;
};

// Statistics that a device is still computing. If they are not empty, and are those of zeros alone, there is
// no row: the parameter took no part in the step.
using UnlessZeros = std::vector<PendingScalars>;

// Training thread. A new shape is interned, which may throw.
class RowWriter {
 public:
  RowWriter(RecordStream& stream, Revision revision, ValueMask ops);

  // Rows written from now on belong to this step. `active`: those that read in it.
  void begin_step(Step step, Readers active = kForRows);
  Readers active() const { return active_; }
  // Call it after the last row of the step. Starts to fetch the values that devices are still computing, and
  // pushes the held rows in order: with the values, if the stream takes only complete records or a held row
  // is for norms (then waits for the devices), otherwise with the LateValues that will have them.
  void end_step();

  // Writes the plan's statistics of one tensor, and those of its scale in a separate row. Ignores an absent
  // or empty reading. Counts a reading that is not applicable, and logs the first one with `name`.
  void write(const RowKey& key, const Reading& reading, const std::string& name,
             const UnlessZeros& unless_zeros = {});
  // Writes the statistics of several tensors as those of one tensor (folded_reading.h).
  void write_folded(const RowKey& key, const std::vector<Reading>& parts, const std::string& name);
  // Writes other values, by column. `pending` (null: none) has the values that a device is still computing,
  // in the order of `values`; if it has none in the end, the row is not applicable, under `name`.
  void write(const RowKey& key, std::initializer_list<ColumnValue> values, const PendingScalars& pending = {},
             const std::string& name = {}, const UnlessZeros& unless_zeros = {});

  // Pushes a histogram at once, because histograms are not held back. `target`: the stream's id.
  void write_histogram(Kind kind, std::uint32_t target, const BinCounts& counts);

  // A tensor could not be read. `target`: the stream's id, if known.
  void count_not_applicable(Kind kind, std::optional<std::uint32_t> target, const std::string& name,
                            const std::string& why);
  // Notes the reason why a row is missing, though every tensor could be read.
  void note_reason(Kind kind, std::uint32_t target, const std::string& why);
  std::uint64_t not_applicable() const { return missing_->counted(); }

 private:
  Record record_of(const RowKey& key) const;
  bool has_row(const RowKey& key, const Reading& reading, const std::string& name);
  Record record_of(const RowKey& key, const Reading& reading);
  void hold_for(LateRow late, const PendingScalars& pending, const UnlessZeros& unless_zeros);
  std::size_t place_of(const PendingScalars& numbers);
  void complete_here(LateRows& late);
  void leave_out_late(const std::string& why);
  void push(const Record& record);
  void enqueue_record(const Record& record);
  std::uint32_t shape_id(const c10::DimVector& sizes);

  RecordStream& stream_;
  const Revision revision_;
  const ValueMask ops_;
  Step step_;
  Readers active_ = kForRows;
  const std::shared_ptr<MissingRows> missing_ = std::make_shared<MissingRows>();  // own synchronisation
  std::map<c10::DimVector, std::uint32_t> shapes_;
  std::vector<Record> held_;
  std::vector<LateRow> late_;
  std::vector<std::size_t> held_late_;  // indices in held_ of the rows in late_
  DeviceBatch batch_;
  std::unordered_map<const DeviceScalars*, std::size_t> places_;  // in batch_
};

// Writes one row for each parameter that was read, in the model's order, for its active readers.
// `unless_zeros`: for the parameter with that index; null: none.
void write_in_order(RowWriter& rows, Kind kind, const std::vector<WatchedTensor>& watched,
                    const std::vector<Reading>& readings,
                    const std::function<UnlessZeros(std::size_t)>& unless_zeros = nullptr);

}  // namespace gradmon

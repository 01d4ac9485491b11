// SPDX-License-Identifier: Apache-2.0
// Turns readings into records.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "control/step.h"
#include "hooks/rows/reading.h"
#include "hooks/rows/record_stream.h"
#include "hooks/stats/device_batch.h"

namespace gradmon {

// The shape as torch prints it: "[16, 8]", "[4]", "[]".
std::string shape_text(const std::vector<std::int64_t>& sizes);

// Identifies a row of the step.
struct RowKey {
  Kind kind = Kind::other;
  std::uint32_t target = 0;    // the stream's id
  std::uint64_t sequence = 0;  // orders the rows of a kind
  int micro_step = 0;
  std::int64_t read_at = 0;  // reading_time() of values that are no Reading; 0: now
};

struct ColumnValue {
  Column column;
  double value;
};

// Training thread. A new shape is interned, which may throw.
class RowWriter {
 public:
  RowWriter(RecordStream& stream, Revision revision, ValueMask ops);

  // Rows written from now on belong to this step.
  void begin_step(Step step);
  // Call it after the last row of the step. Waits once for values that devices are still computing, and
  // pushes the rows that were held back for them, in order.
  void end_step();

  // Writes the plan's statistics of one tensor. Ignores an absent or empty reading. Counts a reading that is
  // not applicable, and logs the first of them with `name`.
  void write(const RowKey& key, const Reading& reading, const std::string& name);
  // Writes other values, by column. `pending` (null: none) has the values that a device is still computing,
  // in the order of `values`; if it yields none, the row is not applicable, under `name`.
  void write(const RowKey& key, std::initializer_list<ColumnValue> values, const PendingScalars& pending = {},
             const std::string& name = {});

  // Pushes a histogram at once: histograms are not held back. `target`: the stream's id.
  void write_histogram(Kind kind, std::uint32_t target, const BinCounts& counts);

  void count_not_applicable(Kind kind, const std::string& name, const std::string& why);
  std::uint64_t not_applicable() const { return not_applicable_; }

 private:
  // A row that is held back, and the indices of its pending numbers in Record::values.
  struct Waiting {
    std::size_t row = 0;  // of held_
    double scale = 1;
    std::array<std::uint8_t, kOps> places{};
    std::size_t count = 0;
    std::string name;
    const char* why_absent = "";
  };

  Record record_of(const RowKey& key) const;
  void push(const Record& record);
  void enqueue_record(const Record& record);
  std::uint32_t shape_id(const std::vector<std::int64_t>& sizes);

  RecordStream& stream_;
  const Revision revision_;
  const ValueMask ops_;
  Step step_;
  std::uint64_t not_applicable_ = 0;
  std::map<std::vector<std::int64_t>, std::uint32_t> shapes_;
  std::vector<Record> held_;
  std::vector<Waiting> waiting_;  // in the order of batch_
  DeviceBatch batch_;
};

// Writes one row for each parameter that was read, in the model's order.
void write_in_order(RowWriter& rows, Kind kind, const std::vector<WatchedTensor>& watched,
                    const std::vector<Reading>& readings);

}  // namespace gradmon

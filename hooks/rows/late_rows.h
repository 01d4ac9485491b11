// SPDX-License-Identifier: Apache-2.0
// The rows of one step whose values a device is still computing.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hooks/device/device_batch.h"
#include "hooks/rows/reading.h"
#include "writers/queue/late_values.h"

namespace gradmon {

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

}  // namespace gradmon

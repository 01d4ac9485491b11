// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "tools/convert/input/conversion_meter.h"
#include "writers/queue/layout.h"
#include "writers/queue/name_table.h"
#include "writers/queue/record.h"

namespace gradmon {

// Records of one kind, with ascending steps.
struct RecordBatch {
  static constexpr std::size_t kRecords = 2048;
  Layout layout;
  std::vector<Record> records;
};

// Passes the records of one task from the reading thread to the writing thread. Bounded.
class RecordChannel {
 public:
  static constexpr std::size_t kBatches = 4;

  explicit RecordChannel(const ConversionMeter& meter) : meter_(meter) {}

  const std::shared_ptr<NameTable>& names() const { return names_; }

  // Reader. Waits for room. Returns false if the meter was stopped.
  bool push(RecordBatch batch);
  // No further batch follows.
  void close();

  // Writer. Waits for a batch. nullopt: all batches are taken, or the meter was stopped.
  std::optional<RecordBatch> pop();

 private:
  // Constant after construction.
  const ConversionMeter& meter_;
  const std::shared_ptr<NameTable> names_ = std::make_shared<NameTable>();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<RecordBatch> batches_;  // guarded by mutex_; the oldest first
  bool closed_ = false;               // guarded by mutex_
};

}  // namespace gradmon

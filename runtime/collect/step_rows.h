// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hooks/rows/record_stream.h"
#include "runtime/scalars/training_scalars.h"
#include "writers/queue/name_table.h"
#include "writers/queue/record.h"

namespace gradmon {

// Collects the rows of a step, beside the record queue, for a function that the writer thread calls
// (WriterThread::write_file()). Has no histograms and no documents. Training thread.
class StepRows : public RecordStream {
 public:
  // Rows of all steps that may wait for the writer thread. A step that would exceed the limit is refused,
  // unless no other step waits.
  static constexpr std::int64_t kMostWaiting = std::int64_t{1} << 18U;

  explicit StepRows(std::shared_ptr<NameTable> names) : names_(std::move(names)) {}

  std::uint32_t target_id(int vpp_stage, std::string_view name) override;
  std::uint32_t shape_id(std::string_view shape) override;
  bool push(const Record& record) noexcept override;
  bool push(const Histogram&) noexcept override { return true; }
  bool take_late(const std::shared_ptr<LateValues>& late) noexcept override;
  void note_missing_row(Kind kind) noexcept override;
  void publish(Document, std::string) noexcept override {}

  // `observer` sees every record of the step. Null: none. It must live until the next call.
  void set_observer(TrainingScalars* observer) noexcept { observer_ = observer; }
  void clear() noexcept {
    rows_.clear();
    late_.reset();
  }
  std::size_t size() const noexcept { return rows_.size(); }

  struct Taken {
    std::vector<Record> rows;
    std::shared_ptr<LateValues> late;  // null: all rows are complete

    // Waits for late values, once. Writer thread.
    std::vector<Record>& completed();
  };
  // Takes the rows away. They count as waiting until the last copy of the result ends. Null: they are refused
  // and stay. Throws only std::bad_alloc.
  std::shared_ptr<Taken> take();

 private:
  const std::shared_ptr<NameTable> names_;  // own synchronisation
  const std::shared_ptr<std::atomic<std::int64_t>> waiting_ = std::make_shared<std::atomic<std::int64_t>>(0);
  std::vector<Record> rows_;
  std::shared_ptr<LateValues> late_;
  TrainingScalars* observer_ = nullptr;
};

}  // namespace gradmon

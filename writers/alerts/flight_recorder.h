// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "control/step.h"
#include "writers/queue/name_table.h"
#include "writers/queue/record_batch.h"
#include "writers/queue/sink.h"
#include "writers/sinks/csv_sink.h"

namespace gradmon {

// The rows of the last steps, for the flight recorder. Pure; one thread.
class FlightRing {
 public:
  // 40 bytes a row.
  static constexpr std::size_t kMostRows = std::size_t{1} << 20U;

  explicit FlightRing(std::size_t most_rows = kMostRows) : most_rows_(most_rows) {}

  // From now on keeps at most `steps` steps; 0: none.
  void keep_at_most(std::int64_t steps);

  // Adds the rows of a step; drops kinds other than grad_reduced and scalar. A row of grad_reduced gives norm
  // and nans, even if its mask has neither. Rows of the newest step join it. The oldest steps are removed if
  // there are too many steps, or more than `most_rows` rows; the newest step always stays.
  void add(Step step, const RecordBatch& records);

  // Marks all steps as due, to be written.
  void mark_all_due() { due_ = steps_.size(); }
  bool has_due() const { return due_ > 0; }
  // The oldest step. The ring must not be empty.
  Step oldest() const { return steps_.front().step; }
  // There must be a due step.
  Step newest_due() const { return steps_[due_ - 1].step; }
  // The rows of the oldest step that are of its first kind, sorted by sequence. The only statistics are norm
  // and nans.
  RecordBatch oldest_rows() const;
  // Removes the rows that oldest_rows() returns, and the step if it has no other rows.
  void remove_oldest_rows();

  std::size_t steps() const { return steps_.size(); }
  std::size_t rows() const { return rows_; }
  // Rows that were due and were removed to make room.
  std::uint64_t lost() const { return lost_; }

 private:
  struct Row {
    std::uint64_t sequence = 0;
    std::array<double, 2> values{};  // norm and nans, or samples and value
    std::uint32_t target = 0;
    std::uint32_t shape = 0;
    Kind kind = Kind::grad_reduced;
    DType dtype = DType::unknown;
    std::uint8_t valid = 0;  // bit i: values[i]
  };
  static_assert(sizeof(Row) == 40);
  struct KeptStep {
    Step step;
    std::vector<Row> rows;  // sorted by kind and sequence
  };

  static Row to_row(const Record& record);
  std::size_t rows_of_first_kind() const;
  void make_room();
  void drop_oldest_step();
  void drop_newest_step();

  const std::size_t most_rows_;
  std::size_t most_steps_ = 0;
  std::deque<KeptStep> steps_;  // oldest first
  std::size_t due_ = 0;         // number of the oldest steps that are due
  std::size_t rows_ = 0;
  std::uint64_t lost_ = 0;
  std::vector<Row> spare_;  // an empty vector with capacity, for the next step
};

// Keeps the rows of the last steps in memory, and writes them to CSV files in `flight/` of the run's
// directory after an alert (FLIGHT.md). Writer thread, except for counts() and count_lost().
class FlightRecorder : public std::enable_shared_from_this<FlightRecorder> {
 public:
  static constexpr std::uint64_t kMostRowsWritten = 4'000'000;
  static constexpr std::int64_t kStepsOfAFile = 1000;
  static constexpr int kMostWritesLogged = 8;

  struct Limits {
    std::size_t rows_kept = FlightRing::kMostRows;
    std::uint64_t rows_written = kMostRowsWritten;  // above it an alert no longer writes
  };
  struct Counts {
    std::uint64_t written = 0;  // rows
    std::uint64_t lost = 0;     // rows that an alert or the rules did not get
    bool full = false;          // rows_written is reached
  };

  // `directory` returns the run's directory, made if missing. `names` resolves the ids in the rows. Skips
  // rows that an earlier process has written.
  FlightRecorder(std::function<std::filesystem::path()> directory, std::shared_ptr<const NameTable> names,
                 const Limits& limits);
  // Call it before the first on_alert(). A write calls the function after the rows of one kind and step
  // (WriterThread::progress()); false: the write stops.
  void report_progress(std::function<bool()> should_continue) {
    should_continue_ = std::move(should_continue);
  }
  FlightRecorder(std::function<std::filesystem::path()> directory, std::shared_ptr<const NameTable> names)
      : FlightRecorder(std::move(directory), std::move(names), Limits{}) {}

  // From now on keeps at most `keep_last` steps; 0: none. The kept steps stay. `layout` gives the decimals.
  void begin(std::int64_t keep_last, const Layout& layout);
  // Keeps the rows of a step, see FlightRing::add().
  void keep(Step step, const RecordBatch& records);
  // Call it after keep() of a step with an alert. All kept steps become due. Returns the write to do; nullopt
  // if an earlier write is still pending, which then writes these steps too, or if no rows are due.
  std::optional<FileToWrite> on_alert(Step step);
  // True if on_alert() was called for that step.
  bool alerted(Step step) const { return alerted_ == step; }

  // Any thread.
  Counts counts() const;
  void count_lost(std::uint64_t rows) { lost_ += rows; }

 private:
  tl::expected<void, std::string> write();
  tl::expected<std::uint64_t, std::string> write_due_rows();
  void note_lost();

  const std::function<std::filesystem::path()> directory_;
  const Limits limits_;
  std::function<bool()> should_continue_;  // null: always
  FlightRing ring_;
  Layout layout_;
  CsvSink sink_;
  bool sink_ready_ = false;  // begin_revision() of the layout was called
  int writes_logged_ = 0;
  Step alerted_{-1};
  std::weak_ptr<void> write_;       // alive while the writer thread has the write
  std::uint64_t lost_in_ring_ = 0;  // the part of ring_.lost() that lost_ contains
  // Own synchronisation.
  std::atomic<std::uint64_t> written_{0};
  std::atomic<std::uint64_t> lost_{0};
  std::atomic<bool> full_{false};
};

}  // namespace gradmon

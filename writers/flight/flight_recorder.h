// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "control/step.h"
#include "writers/flight/flight_ring.h"
#include "writers/queue/file_to_write.h"
#include "writers/queue/layout.h"
#include "writers/queue/name_table.h"
#include "writers/sinks/csv/csv_sink.h"

namespace gradmon {

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
  void keep(Step step, const std::vector<Record>& records);
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

// SPDX-License-Identifier: Apache-2.0
// The interfaces of the users of the writer thread: sinks and the observer of steps.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "control/step.h"
#include "control/vocabulary.h"
#include "writers/queue/record_batch.h"

namespace gradmon {

// Selects the form of the tags in event files (FORMAT.md).
enum class TagForm : std::uint8_t { gradmon, msprobe };

// The part of a plan that sinks need: columns, decimals, steps per file. A value.
struct Layout {
  Revision revision;
  std::vector<Op> ops{Op::norm};              // columns, in the configured order, without duplicates
  int ndigits = 6;                            // decimals in CSV
  int digits = 0;                             // significant digits in CSV instead; 0: uses ndigits
  bool compress = false;                      // CSV files are .csv.zst
  std::int64_t step_count_per_record = 1;     // steps of one CSV file, at least 1
  bool micro_step_in_grad_unreduced = false;  // monitor_mbs_grad
  bool samples = false;                       // rows have the marks of tensors that were read in part
  TagForm tags = TagForm::gradmon;
};

struct SinkError {
  std::string text;             // names the place and the cause
  std::uint64_t rows_lost = 0;  // of the records or histograms passed in this call
};

// The destination of records: CSV files, event files, memory. A sink belongs to one revision. Only the writer
// thread calls it: first begin_revision, then write_step, write_histograms and flush any number of times,
// then the destructor, which must not need a flush. Errors are values; nothing is thrown.
class Sink {
 public:
  // Called when rows of one kind in a step have been written or lost. Returns false if the sink should drop
  // the rest of the step.
  using OnPart = std::function<bool(Kind kind, std::uint64_t rows)>;

  virtual ~Sink() = default;

  // For messages: "csv", "memory".
  virtual const char* name() const = 0;

  // True if its rows count as written or lost. False for a sink that the user did not configure.
  virtual bool counts() const { return true; }

  // Called before all other members. A sink whose parts of a step can each take long calls `on_part`
  // after each of them; other sinks ignore it.
  virtual void report_parts(OnPart /*on_part*/) {}

  [[nodiscard]] virtual tl::expected<void, SinkError> begin_revision(const Layout& layout) = 0;

  // Gets all records of one step, sorted by kind and then sequence. Called at most once per step.
  // Records that could not be kept are counted in rows_lost and not passed again.
  [[nodiscard]] virtual tl::expected<void, SinkError> write_step(Step step, const RecordBatch& records) = 0;

  // True if the sink has a place for histograms.
  virtual bool keeps_histograms() const { return false; }
  // Gets all histograms of one step, sorted by kind, after the step's records. Same rules as write_step;
  // called only if keeps_histograms().
  [[nodiscard]] virtual tl::expected<void, SinkError> write_histograms(
      Step /*step*/, const std::vector<Histogram>& /*histograms*/) {
    return {};
  }

  // After it, another process can read all kept rows.
  [[nodiscard]] virtual tl::expected<void, SinkError> flush() = 0;
};

// Writes an output file that is not a sink's. The writer thread calls it, in order, and again after a
// failure.
struct FileToWrite {
  std::function<tl::expected<void, std::string>()> write;  // the error names the file
};

// Sees the records of each collected step before the sinks do. An observer belongs to one revision. Only the
// writer thread calls it: first begin_revision, then on_step any number of times, then the destructor.
class StepObserver {
 public:
  using Time = std::chrono::steady_clock::time_point;

  virtual ~StepObserver() = default;

  virtual void begin_revision(const Layout& layout) = 0;

  // Gets all records of a step that counts, sorted by kind and then sequence. Returns a file to write after
  // the step's rows, or nothing. An exception is logged, and the observer is not called again.
  [[nodiscard]] virtual std::optional<FileToWrite> on_step(Step step, const RecordBatch& records,
                                                           Time now) = 0;
  // The same, for records that the sinks do not get: kForFlight, kForReplicas.
  [[nodiscard]] virtual std::optional<FileToWrite> on_flight(Step, const RecordBatch& /* records */,
                                                             Time /* now */) {
    return std::nullopt;
  }
  virtual void on_replicas(Step, const RecordBatch& /* records */) {}
};

}  // namespace gradmon

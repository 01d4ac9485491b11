// SPDX-License-Identifier: Apache-2.0
// Where records end: CSV, memory, later TensorBoard and SQLite. A sink belongs
// to one revision and to the writer thread, which alone calls it, in the order
// begin_revision, then write_step and flush as they come, then the destructor
// (which must not need a flush). Errors are values; nothing is thrown.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "control/step.h"
#include "writers/queue/layout.h"
#include "writers/queue/record.h"

namespace gradmon {

struct SinkError {
  std::string text;             // names the place and the cause
  std::uint64_t rows_lost = 0;  // of the records handed over in this call
};

class Sink {
 public:
  // The rows of a kind in a step are dealt with, written or lost. False: nobody waits
  // for the rest of the step any more.
  using OnPart = std::function<bool(Kind kind, std::uint64_t rows)>;

  virtual ~Sink() = default;

  // For messages: "csv", "memory".
  virtual const char* name() const = 0;

  // Before all others. A sink that writes a step in parts, which may each take long,
  // calls `on_part` after each of them within write_step; others need not.
  virtual void report_parts(OnPart /*on_part*/) {}

  [[nodiscard]] virtual tl::expected<void, SinkError> begin_revision(const Layout& layout) = 0;

  // All records of one step, sorted by kind and then sequence; called at most
  // once a step. What could not be kept is in rows_lost and is not offered
  // again; the next step is.
  [[nodiscard]] virtual tl::expected<void, SinkError> write_step(Step step,
                                                                 const std::vector<Record>& records) = 0;

  // Afterwards another process can read everything that was kept.
  [[nodiscard]] virtual tl::expected<void, SinkError> flush() = 0;
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// Sees the records of each collected step before the sinks do. An observer belongs to one revision. Only the
// writer thread calls it: first begin_revision, then on_step any number of times, then the destructor.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "control/step.h"
#include "writers/queue/file_to_write.h"
#include "writers/queue/layout.h"
#include "writers/queue/record.h"

namespace gradmon {

class StepObserver {
 public:
  using Time = std::chrono::steady_clock::time_point;

  virtual ~StepObserver() = default;

  virtual void begin_revision(const Layout& layout) = 0;

  // Gets all records of a step that counts, sorted by kind and then sequence. Returns a file to write after
  // the step's rows, or nothing. An exception is logged, and the observer is not called again.
  [[nodiscard]] virtual std::optional<FileToWrite> on_step(Step step, const std::vector<Record>& records,
                                                           Time now) = 0;
};

}  // namespace gradmon

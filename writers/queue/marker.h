// SPDX-License-Identifier: Apache-2.0
// Control messages to the writer thread. It gets them in the order in which they were posted.
// Markers are never dropped and take no place in the queue.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "control/step.h"
#include "writers/queue/file_to_write.h"
#include "writers/queue/histogram.h"
#include "writers/queue/late_values.h"
#include "writers/queue/layout.h"
#include "writers/queue/sink.h"
#include "writers/queue/step_observer.h"

namespace gradmon {

struct RevisionBegun {
  Layout layout;
  std::vector<std::unique_ptr<Sink>> sinks;
  std::unique_ptr<StepObserver> observer;           // may be null
  std::function<void(std::vector<Record>&)> amend;  // may be null
};

struct StepEnded {
  Revision revision;
  Step step;
  std::uint64_t records;                  // accepted since the previous step ended
  std::vector<Histogram> histograms;      // with their places in the HistogramLane
  bool valid = true;                      // false: neither must be written
  std::shared_ptr<LateValues> late = {};  // of the records; null: all are complete
  std::vector<Record> more = {};          // further records, without places in the queue
};

struct CollectionEnded {
  Revision revision;
  Step last;
};

// The last marker.
struct WriterStopped {};

struct Marker {
  std::variant<RevisionBegun, StepEnded, CollectionEnded, FileToWrite, WriterStopped> message;
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// What the writer thread is told besides records, in the order it was said.
// Markers are never dropped and take no place in the queue.
#pragma once

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "control/step.h"
#include "writers/layout.h"
#include "writers/sink.h"

namespace gradmon {

struct RevisionBegun {
  Layout layout;
  std::vector<std::unique_ptr<Sink>> sinks;
};

struct StepEnded {
  Revision revision;
  Step step;
  std::uint64_t records;  // accepted since the step before ended
};

struct CollectionEnded {
  Revision revision;
  Step last;
};

// Nothing is said after this.
struct WriterStopped {};

struct Marker {
  std::variant<RevisionBegun, StepEnded, CollectionEnded, WriterStopped> what;
};

}  // namespace gradmon

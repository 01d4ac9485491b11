// SPDX-License-Identifier: Apache-2.0
// Control messages to the writer thread. It gets them in the order in which they were posted.
// Markers are never dropped and take no place in the queue.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tl/expected.hpp>
#include <variant>
#include <vector>

#include "control/step.h"
#include "writers/queue/layout.h"
#include "writers/queue/sink.h"

namespace gradmon {

struct RevisionBegun {
  Layout layout;
  std::vector<std::unique_ptr<Sink>> sinks;
};

struct StepEnded {
  Revision revision;
  Step step;
  std::uint64_t records;  // accepted since the previous step ended
  bool valid = true;      // false: its records must not be written
};

struct CollectionEnded {
  Revision revision;
  Step last;
};

// Writes an output file that is not a sink's. The writer thread calls it once, in order.
struct FileToWrite {
  std::function<tl::expected<void, std::string>()> write;  // the error names the file
};

// The last marker.
struct WriterStopped {};

struct Marker {
  std::variant<RevisionBegun, StepEnded, CollectionEnded, FileToWrite, WriterStopped> message;
};

}  // namespace gradmon

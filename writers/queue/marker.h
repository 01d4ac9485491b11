// SPDX-License-Identifier: Apache-2.0
// What the writer thread is told besides records, in the order it was said.
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
  std::uint64_t records;  // accepted since the step before ended
  bool counts = true;     // false: its records are not to be written
};

struct CollectionEnded {
  Revision revision;
  Step last;
};

// An output file that is no table: the writer thread calls this once, in its turn.
struct FileToWrite {
  std::function<tl::expected<void, std::string>()> write;  // the error names the file
};

// Nothing is said after this.
struct WriterStopped {};

struct Marker {
  std::variant<RevisionBegun, StepEnded, CollectionEnded, FileToWrite, WriterStopped> what;
};

}  // namespace gradmon

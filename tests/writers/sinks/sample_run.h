// SPDX-License-Identifier: Apache-2.0
// A small run of rank 2 with rows of every kind, for tests of sinks.
#pragma once

#include <memory>

#include "writers/queue/name_table.h"
#include "writers/queue/record.h"
#include "writers/queue/sink.h"

namespace gradmon {

class SampleRun {
 public:
  static constexpr std::int64_t kSteps = 20;
  static constexpr std::int64_t kStepsOfARevision = 10;

  std::shared_ptr<NameTable> names() const { return names_; }
  // Revision 1 or 2. The second has other statistics and the micro steps of gradients.
  Layout layout(std::uint64_t revision) const;
  std::string config(std::uint64_t revision) const;
  // Sorted by kind. Step 3 has values that are not finite.
  std::vector<Record> rows(std::int64_t step) const;

 private:
  const std::shared_ptr<NameTable> names_ = std::make_shared<NameTable>();
};

}  // namespace gradmon

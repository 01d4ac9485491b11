// SPDX-License-Identifier: Apache-2.0
// Readings to records.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "control/step.h"
#include "hooks/reading.h"
#include "hooks/record_stream.h"

namespace gradmon {

struct RowCounts {
  std::uint64_t rows = 0;
  std::uint64_t refused = 0;
  std::uint64_t not_applicable = 0;
};

// As torch prints it: "[16, 8]", "[4]", "[]".
std::string shape_text(const std::vector<std::int64_t>& sizes);

// Training thread. Shapes are interned at first sight, which may throw.
class RowWriter {
 public:
  RowWriter(RecordStream& stream, Revision revision, std::uint8_t ops);

  // Says nothing of an absent or empty reading, counts one without numbers (and
  // logs the first of them), and pushes every other.
  void write(Kind kind, Step step, std::uint64_t sequence, const Watched& watched, const Reading& reading);
  const RowCounts& counts() const { return counts_; }

 private:
  std::uint32_t shape_id(const std::vector<std::int64_t>& sizes);

  RecordStream& stream_;
  const Revision revision_;
  const std::uint8_t ops_;
  RowCounts counts_;
  std::map<std::vector<std::int64_t>, std::uint32_t> shapes_;
};

}  // namespace gradmon

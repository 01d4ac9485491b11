// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "writers/queue/record.h"

namespace gradmon {

using RowsByKind = std::array<std::uint64_t, kKinds>;

// The output that an abandoned writer thread has not written. A file whose write still hangs counts, although
// the write may yet succeed.
struct AbandonedOutput {
  RowsByKind rows{};
  std::uint64_t queued = 0;  // rows still in the queue, of unknown kind
  std::size_t files = 0;     // other output files, and lines of the log

  std::uint64_t all_rows() const;
};

// "12 rows (10 of grad_reduced, 2 of unknown kind) and 1 other file"
std::string to_string(const AbandonedOutput& abandoned_output);

}  // namespace gradmon

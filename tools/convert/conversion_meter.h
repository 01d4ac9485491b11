// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace gradmon {

// The progress of a conversion. Any thread.
struct ConversionMeter {
  std::atomic<std::uint64_t> rows{0};      // converted
  std::atomic<std::uint64_t> repeated{0};  // of steps that a later start of the job has collected again
  std::atomic<std::uint64_t> bytes{0};     // read
  std::atomic<bool> stop{false};           // set to end the conversion early
};

}  // namespace gradmon

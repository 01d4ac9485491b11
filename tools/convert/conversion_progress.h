// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <ostream>
#include <string>

#include "tools/convert/conversion_meter.h"

namespace gradmon {

// " 45 %, 1230000 rows, 310000 rows/s, 12 s left". `seconds`: since the beginning. Pure.
std::string progress_text(std::uint64_t rows, std::uint64_t bytes_read, std::uint64_t bytes_of_all,
                          double seconds);

// A line in a terminal that shows the progress of a conversion, four times a second. One thread.
class ConversionProgress {
 public:
  // `terminal`: null shows no line.
  ConversionProgress(std::uint64_t bytes_of_all, std::ostream* terminal)
      : bytes_of_all_(bytes_of_all), terminal_(terminal) {}

  void show(const ConversionMeter& meter);
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  const std::uint64_t bytes_of_all_;
  std::ostream* const terminal_;
  const Clock::time_point began_ = Clock::now();
  Clock::time_point shown_ = began_;
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/conversion_progress.h"

#include <algorithm>
#include <cmath>

namespace gradmon {
namespace {

constexpr std::chrono::milliseconds kInterval{250};
constexpr double kFirstEstimate = 0.01;  // share of the bytes, below which the remaining time is unknown
constexpr const char* kClearLine = "\r\x1b[K";

std::string whole(double value) { return std::to_string(static_cast<std::int64_t>(std::llround(value))); }

}  // namespace

std::string progress_text(std::uint64_t rows, std::uint64_t bytes_read, std::uint64_t bytes_of_all,
                          double seconds) {
  const double share =
      bytes_of_all == 0 ? 1
                        : std::min(1.0, static_cast<double>(bytes_read) / static_cast<double>(bytes_of_all));
  std::string text = whole(std::floor(100 * share)) + " %, " + std::to_string(rows) + " rows";
  if (seconds <= 0) return text;
  text += ", " + whole(static_cast<double>(rows) / seconds) + " rows/s";
  if (share < kFirstEstimate) return text;
  return text + ", " + whole(seconds * (1 - share) / share) + " s left";
}

void ConversionProgress::show(const ConversionMeter& meter) {
  const Clock::time_point now = Clock::now();
  if (terminal_ == nullptr || now - shown_ < kInterval) return;
  shown_ = now;
  const double seconds = std::chrono::duration<double>(now - began_).count();
  *terminal_ << kClearLine << progress_text(meter.rows, meter.bytes, bytes_of_all_, seconds) << std::flush;
}

void ConversionProgress::clear() {
  if (terminal_ != nullptr && shown_ != began_) *terminal_ << kClearLine << std::flush;
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// Shields the writer thread from a failing sink. After an error that kept no row, the sink is not
// called for a while, and its rows are lost at once. One thread; the caller passes the time.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "writers/queue/sink.h"

namespace gradmon {

struct Pauses {
  std::chrono::milliseconds first{100};      // twice as long after each further failure,
  std::chrono::milliseconds longest{10000};  // up to this
};

class RetryingSink {
 public:
  using Time = std::chrono::steady_clock::time_point;

  struct Outcome {
    std::uint64_t written = 0;
    std::uint64_t lost = 0;
  };

  RetryingSink(std::unique_ptr<Sink> sink, Layout layout, Pauses pauses);

  // Writes the records and histograms of a step; the outcome counts both as rows. Begins the revision first
  // if that has not succeeded yet. Logs the first error of a series and the success that ends it. Histograms
  // that the sink does not keep do not count, and are not passed to it.
  Outcome write(Step step, const std::vector<Record>& records, const std::vector<Histogram>& histograms,
                Time now);
  Outcome write(Step step, const std::vector<Record>& records, Time now) {
    return write(step, records, {}, now);
  }
  bool counts() const { return sink_->counts(); }
  bool keeps_histograms() const { return sink_->keeps_histograms(); }
  void flush();

  // The last error; empty if there was none.
  const std::string& error() const { return error_; }

 private:
  SinkError try_write(Step step, const std::vector<Record>& records,
                      const std::vector<Histogram>& histograms);
  void mark_failed(std::string error);
  void recover();

  std::unique_ptr<Sink> sink_;
  const Layout layout_;
  const Pauses pauses_;
  bool revision_begun_ = false;
  bool failing_ = false;
  std::string error_;
  std::uint64_t lost_ = 0;  // while failing
  std::chrono::milliseconds pause_{0};
  Time retry_at_{};
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "writers/queue/guarded_sink.h"
#include "writers/queue/marker.h"

namespace gradmon {

// Writes files that are no tables; one that fails is kept and tried again after
// a pause, as a sink is. One thread; time is told.
class GuardedFiles {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::size_t kMostKept = 16;  // beyond it the oldest is given up, and that is logged

  // `goes_on` is asked before a file is tried again; false: it is left. Null: always.
  explicit GuardedFiles(Pauses pauses, std::function<bool()> goes_on = nullptr)
      : pauses_(pauses), goes_on_(std::move(goes_on)) {}

  // What it throws counts as its error. The first error of a series is logged,
  // and the success that ends it.
  void write(FileToWrite file, Time now);
  // Those that failed, where their pause is over.
  void retry(Time now);
  // All that failed, now.
  void try_all();

  // Of the files that are not written, the last; empty: there are none.
  const std::string& error() const { return error_; }
  std::size_t failed() const { return failed_.size(); }

 private:
  bool try_again(const FileToWrite& file);
  bool try_write(const FileToWrite& file);

  const Pauses pauses_;
  const std::function<bool()> goes_on_;
  std::vector<FileToWrite> failed_;
  std::string error_;
  std::chrono::milliseconds pause_{0};
  Time retry_at_{};
};

}  // namespace gradmon

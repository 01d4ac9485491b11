// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "writers/queue/file_to_write.h"
#include "writers/queue/retrying_sink.h"

namespace gradmon {

// Writes output files other than sinks' files. A file that cannot be written is kept and retried after a
// pause. One thread; the caller passes the time.
class RetryingFiles {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::size_t kMostKept = 16;  // above it the oldest is dropped, with a log line

  // `should_continue` is called before each retry; false: no retry. Null: always retry.
  explicit RetryingFiles(Pauses pauses, std::function<bool()> should_continue = nullptr)
      : pauses_(pauses), should_continue_(std::move(should_continue)) {}

  // An exception counts as an error. Logs the first error of a series and the success that ends it.
  void write(FileToWrite file, Time now);
  // Tries the failed files again, if the pause is over.
  void retry(Time now);
  // Tries all failed files now.
  void try_all();

  // The last error; empty if every file is written.
  const std::string& error() const { return error_; }
  std::size_t failed() const { return failed_.size(); }

 private:
  bool try_again(const FileToWrite& file);
  bool try_write(const FileToWrite& file);

  const Pauses pauses_;
  const std::function<bool()> should_continue_;
  std::vector<FileToWrite> failed_;
  std::string error_;
  std::chrono::milliseconds pause_{0};
  Time retry_at_{};
};

}  // namespace gradmon

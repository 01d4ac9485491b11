// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace gradmon {

// Writes to stdout or stderr without waiting for its reader, and keeps the rest. If the reader has gone,
// the text is discarded. One thread.
class PendingOutput {
 public:
  explicit PendingOutput(int fd) : fd_(fd) {}
  PendingOutput(const PendingOutput&) = delete;
  PendingOutput& operator=(const PendingOutput&) = delete;

  int fd() const { return fd_; }  // for poll()
  bool blocked() const { return !rest_.empty(); }
  // Writes as much as fits now.
  void write(std::string_view bytes);
  void write_rest() { write({}); }

 private:
  const int fd_;  // Borrowed; may be in blocking mode.
  std::string rest_;
};

}  // namespace gradmon

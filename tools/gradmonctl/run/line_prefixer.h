// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gradmon {

// Turns the output of a rank, in pieces of any size, into whole lines that begin with
// "[RANK] ". A value; does no I/O.
class LinePrefixer {
 public:
  // Cuts a longer line into lines of this many bytes: memory is bounded.
  static constexpr std::size_t kLongestLine = 64 * 1024;

  explicit LinePrefixer(int rank) : prefix_("[" + std::to_string(rank) + "] ") {}

  // The lines that `bytes` completes, prefixed, each with its line feed.
  std::string feed(std::string_view bytes);
  // The unfinished last line at the end of the output, with a line feed; "" if none.
  std::string finish();

 private:
  std::string prefix_;   // Constant after construction.
  std::string pending_;  // The beginning of a line.
};

}  // namespace gradmon

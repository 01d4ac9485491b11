// SPDX-License-Identifier: Apache-2.0
// Any bytes are an event file with records and at most one problem, and any record is a histogram or none. A
// good record before them is read.
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/fuzz/promise.h"
#include "tools/analyse/rows/histogram_rows.h"
#include "writers/sinks/event_records.h"

namespace {

using namespace gradmon;
using gradmon::fuzz::promise;

// A file in memory.
class MemoryFile {
 public:
  explicit MemoryFile(const std::string& content) : file_(::memfd_create("gradmon-fuzz", MFD_CLOEXEC)) {
    promise(file_.valid(), "a file can be made");
    promise(::write(file_.get(), content.data(), content.size()) == static_cast<ssize_t>(content.size()),
            "a file can be written");
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_.get()); }

 private:
  const Descriptor file_;
};

void check(const HistogramRow& row) {
  promise(row.step >= 0 && row.rank >= 0 && row.vpp_stage >= 0, "numbers are not negative");
  promise(is_histogram(row.kind), "the kind is that of a histogram");
  for (const double count : row.counts) promise(std::isfinite(count) && count >= 0, "a count is a number");
}

// Returns the number of histograms.
std::size_t read(const std::string& content) {
  const MemoryFile memory(content);
  Problems problems;
  EventFile file(memory.path(), problems);
  std::size_t histograms = 0;
  for (std::string_view event; file.next(event);) {
    const auto row = histogram_row_of(event);
    if (row) check(*row);
    histograms += row.has_value();
  }
  promise(problems.count() <= 1, "a file has one problem at most");
  return histograms;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  read(text);
  if (const auto row = histogram_row_of(text)) check(*row);
  promise(read(histogram_record("0:w/rank0/update", {}, Step{1}, 1) + text) >= 1, "a good record is read");
  return 0;
}

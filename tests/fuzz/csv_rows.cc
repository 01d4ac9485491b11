// SPDX-License-Identifier: Apache-2.0
// Any bytes are a CSV file with rows and problems. Whatever it begins with, a good row after it is read.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "tests/fuzz/promise.h"
#include "tools/analyse/rows/row_file.h"

namespace {

using gradmon::fuzz::promise;

// Reads all rows; `piece`: the most bytes that are given at a time.
struct Reading {
  Reading(const std::string& text, std::size_t piece) {
    std::size_t at = 0;
    gradmon::Problems problems;
    gradmon::RowFile file(
        "fuzz.csv",
        [&](char* into, std::size_t room) {
          const std::size_t size = std::min({piece, room, text.size() - at});
          std::memcpy(into, text.data() + at, size);
          at += size;
          return size;
        },
        problems);
    gradmon::Row row;
    while (file.next(row)) {
      promise(row.line >= last_line, "the lines of the rows do not descend");
      promise(row.place == (row.step == last_step ? last_place + 1 : 0),
              "the places of the rows of a step are counted");
      promise(row.step >= 0, "a step is not negative");
      last_line = row.line;
      last_step = row.step;
      last_place = row.place;
      last_name = row.name;
      ++rows;
    }
    problem_count = problems.count();
  }

  std::uint64_t rows = 0;
  std::uint64_t last_line = 0;
  std::int64_t last_step = -1;
  std::uint64_t last_place = 0;
  std::uint64_t problem_count = 0;
  std::string last_name;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const Reading whole(text, text.size() + 1);
  const Reading pieces(text, 7);
  promise(whole.rows == pieces.rows && whole.problem_count == pieces.problem_count,
          "the rows do not depend on the pieces in which they arrive");
  const Reading followed("name,step\n" + text + "\nname,step\ngood,1\n", text.size() + 64);
  promise(followed.last_name == "good", "a good row at the end is read");
  return 0;
}

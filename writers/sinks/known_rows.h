// SPDX-License-Identifier: Apache-2.0
// The rows that a file of an earlier job has. A restarted job does not write them again. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <utility>

namespace gradmon {

// Whether a sink goes on in the output of an earlier job (`append_output`), so that it looks for its rows.
enum class Resume : bool { no, yes };

// A step is there as a whole, except for the last one of the file: its process may have been killed while it
// wrote that step. Of that step, the rows that are there are known by name.
class KnownRows {
 public:
  // Adds a row of the file, in the order of the file. `name` tells it from the other rows of its step.
  void add(std::int64_t step, std::string name) {
    if (step != last_step_) rows_of_last_step_.clear();
    last_step_ = step;
    steps_.insert(step);
    rows_of_last_step_.insert(std::move(name));
  }

  bool has_step(std::int64_t step) const { return steps_.count(step) != 0; }
  bool has(std::int64_t step, const std::string& name) const {
    return has_step(step) && (step != last_step_ || rows_of_last_step_.count(name) != 0);
  }

 private:
  std::unordered_set<std::int64_t> steps_;
  std::int64_t last_step_ = -1;
  std::unordered_set<std::string> rows_of_last_step_;
};

}  // namespace gradmon

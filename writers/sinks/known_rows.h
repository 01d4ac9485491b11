// SPDX-License-Identifier: Apache-2.0
// The rows that a file of an earlier job has. A restarted job does not write them again. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <utility>

namespace gradmon {

// yes: a sink continues the output of an earlier job (`append_output`), so it looks for its rows.
enum class Resume : bool { no, yes };

// The file has all rows of its steps, except perhaps of the last one: its process may have been killed while
// it wrote that step. The rows of the last step are known by their keys.
class KnownRows {
 public:
  // Adds a row, in the order of the file. `key` identifies the row within its step.
  void add(std::int64_t step, std::string key) {
    if (step != last_step_) rows_of_last_step_.clear();
    last_step_ = step;
    steps_.insert(step);
    rows_of_last_step_.insert(std::move(key));
  }

  bool has_step(std::int64_t step) const { return steps_.count(step) != 0; }
  bool has(std::int64_t step, const std::string& key) const {
    return has_step(step) && (step != last_step_ || rows_of_last_step_.count(key) != 0);
  }

 private:
  std::unordered_set<std::int64_t> steps_;
  std::int64_t last_step_ = -1;
  std::unordered_set<std::string> rows_of_last_step_;
};

}  // namespace gradmon

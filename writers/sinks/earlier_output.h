// SPDX-License-Identifier: Apache-2.0
// The output of an earlier job that a restarted job continues: its rows, which are not written again, and its
// numbers of samples.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <unordered_set>
#include <utility>
#include <vector>

#include "control/step.h"
#include "writers/queue/record_batch.h"

namespace gradmon {

// yes: a sink continues the output of an earlier job (`append_output`), so it looks for its rows.
enum class Resume : bool { no, yes };

// The rows of one file of an earlier job. Pure. The file has all rows of its steps, except perhaps of the
// last one: its process may have been killed while it wrote that step. The rows of the last step are known by
// their keys.
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

// Numbers of samples that all ranks together had seen up to and including a step, by step.
using SamplesByStep = std::map<std::int64_t, std::int64_t>;

// Continues an earlier job's number of samples in a job that continues its output (`append_output`). A step
// that the earlier job has written keeps its number, and later steps continue from it. Before any such step
// the number continues from the last row before this job's first step. If the program reports more samples in
// its first step than that, it counts the earlier job's samples itself, and its numbers are kept.
class ResumedSamples {
 public:
  // Reads the earlier output: the numbers of all steps from `from` on, and of one step before it, if one
  // exists. at() calls it until it succeeds.
  using Find = std::function<tl::expected<SamplesByStep, std::string>(Step from)>;

  ResumedSamples(Step first_step, Find find) : first_step_(first_step), find_(std::move(find)) {}

  // Adds samples that the program reports before the end of its first step. Training thread.
  void count_first(std::int64_t samples) noexcept { counted_first_ += samples; }

  // Writer thread. The number up to and including `step`; `counted`: by this job. nullopt: the earlier
  // output cannot be read, so the number is unknown.
  std::optional<std::int64_t> at(Step step, std::int64_t counted) noexcept;
  // Writer thread. Sets the number of samples of the training scalars among the rows of a step; removes it
  // if it is unknown.
  void amend(RecordBatch& rows) noexcept;

  // Any thread. The reason why numbers are missing; "": none are missing.
  std::string problem() const;

 private:
  bool find() noexcept;

  const Step first_step_;
  const Find find_;
  std::atomic<std::int64_t> counted_first_{0};

  // Writer thread only.
  std::optional<SamplesByStep> earlier_;  // not set: not found yet
  std::int64_t offset_ = 0;               // earlier job's number minus this job's count

  mutable std::mutex mutex_;
  std::string problem_;  // guarded by mutex_
};

}  // namespace gradmon

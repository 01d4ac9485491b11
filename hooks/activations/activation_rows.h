// SPDX-License-Identifier: Apache-2.0
// The readings of the activations of one step, and of their gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "hooks/activations/reading_cache.h"
#include "hooks/observe/hook_gate.h"
#include "hooks/rows/step_limit.h"

namespace gradmon {

// Any thread, except begin_step, end_step and take_rows: training thread, at step boundaries. Shared with
// hooks that may outlive the step and the probe; a gradient that arrives after its step is only counted.
class ActivationRows {
 public:
  static constexpr std::size_t kMostRows = std::size_t{1} << 20;  // some 300 MiB

  struct Row {
    Kind kind = Kind::actv;
    int vpp_stage = 0;
    std::string name;  // in the rows
    int micro_step = 0;
    Reading reading;
  };

  // `fuse` must outlive the last end_step().
  ActivationRows(double eps, ReuseReadings reuse, HookFuse& fuse, std::size_t most_rows = kMostRows)
      : cache_(eps, reuse), limit_(most_rows, "rows of activations"), fuse_(fuse) {}

  void begin_step();
  void end_step() noexcept {
    gate_.close();
    cache_.end_step();
  }
  // Returns and removes all rows, in the order in which they were first added.
  std::vector<Row> take_rows();
  // The number of gradients that arrived after their step, since the last call.
  std::uint64_t take_late() noexcept { return late_.exchange(0, std::memory_order_relaxed); }

  // The number of the last step that began, from 1; 0 before the first.
  std::uint64_t step() const noexcept { return step_.load(std::memory_order_acquire); }
  // Reads the tensor, or reuses an earlier reading of it, and adds the row. Call it within enter() or a
  // forward listener. A gradient replaces an earlier one of the same name and micro step: several passes went
  // through the graph, or a recomputation has hooked the same tensor.
  // `scope`: the scope of a tensor that does not have its own. No row is added once the step has `most_rows`:
  // see StepLimit.
  void add(Row row, const at::Tensor& tensor, const ScopeText& scope = {});
  // Call it after reading a tensor within a compiled graph, whose kernels reuse its memory for other tensors.
  void forget_readings() { cache_.forget(); }
  // Notes that this row will be missing, and why.
  void note_not_applicable(const Row& row, const std::string& why);
  using Reasons = std::map<std::pair<int, std::string>, std::string>;  // by stage and name
  Reasons take_not_applicable();                                       // empties the list
  // Removes the rows of a micro step of a chunk, after its forward has thrown.
  void drop(int vpp_stage, int micro_step);
  // For a hook that was set in step `step`: runs body() if this step is still open, else counts it as late.
  template <typename Body>
  void enter(std::uint64_t step, const std::string& name, Body&& body) noexcept {
    bool in_time = false;
    gate_.enter([&](std::uint64_t now) {
      in_time = now == step;
      if (in_time && !fuse_.tripped()) fuse_.guard(name, body);
    });
    if (!in_time) late_.fetch_add(1, std::memory_order_relaxed);
  }

  ReadingCache::Counts counts() const { return cache_.counts(); }

 private:
  void keep(Row row);
  bool is_full();

  // Own synchronisation.
  ReadingCache cache_;
  StepLimit limit_;
  HookGate gate_;
  std::atomic<std::uint64_t> late_{0};
  std::atomic<std::uint64_t> step_{0};
  HookFuse& fuse_;

  std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<Row> rows_;
  // Index in rows_ of each gradient, by stage, name and micro step.
  std::map<std::tuple<int, std::string, int>, std::size_t> gradients_;
  Reasons not_applicable_;
};

}  // namespace gradmon

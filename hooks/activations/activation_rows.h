// SPDX-License-Identifier: Apache-2.0
// The activations of one step and their gradients, as numbers.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "hooks/observe/body_gate.h"
#include "hooks/activations/known_readings.h"

namespace gradmon {

// Any thread, but for begin_step, end_step and take_rows: the training thread's,
// at step boundaries. Shared by hooks that may outlive the step and the probe:
// what they bring then is not taken, and counted.
class ActivationRows {
 public:
  struct Row {
    Kind kind = Kind::actv;
    int vpp_stage = 0;
    std::string name;  // as records call it
    int micro_step = 0;
    Reading reading;
  };

  // `fuse` outlives the last end_step.
  ActivationRows(double eps, HookFuse& fuse) : known_(eps), fuse_(fuse) {}

  void begin_step();
  void end_step() noexcept {
    gate_.close();
    known_.end_step();
  }
  // In the order in which they came (gradients: first came), and nothing is left.
  std::vector<Row> take_rows();
  // Gradients that came after their step, since the last call.
  std::uint64_t take_late() noexcept { return late_.exchange(0, std::memory_order_relaxed); }

  // Of the step that began last; 0 before the first.
  std::uint64_t step() const noexcept { return step_.load(std::memory_order_acquire); }
  // Within a step's tap or enter(): reads the tensor, unless it is known. A
  // gradient that comes again takes the place of what came before: several passes
  // went through the graph, or a recomputation has hooked the same tensor.
  void add(Row row, const at::Tensor& tensor);
  // A row that this step will not have.
  void note_indistinct(const std::string& name, const std::string& why);
  std::map<std::string, std::string> take_indistinct();  // name to why
  // Those of a micro step of a chunk so far, whose forward came to nothing.
  void drop(int vpp_stage, int micro_step);
  // From a hook that was set in `step`: runs body() if that is the step now.
  template <typename Body>
  void enter(std::uint64_t step, const std::string& name, Body&& body) noexcept {
    bool in_time = false;
    gate_.enter([&](std::uint64_t now) {
      in_time = now == step;
      if (in_time && !fuse_.tripped()) fuse_.guard(name, body);
    });
    if (!in_time) late_.fetch_add(1, std::memory_order_relaxed);
  }

  KnownReadings::Counts counts() const { return known_.counts(); }

 private:
  void keep(Row row);

  // Own synchronisation.
  KnownReadings known_;
  BodyGate gate_;
  std::atomic<std::uint64_t> late_{0};
  std::atomic<std::uint64_t> step_{0};
  HookFuse& fuse_;

  std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<Row> rows_;
  std::map<std::tuple<int, std::string, int>, std::size_t> gradients_;  // stage, name, micro step: of rows_
  std::map<std::string, std::string> indistinct_;
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// actv and actv_grad: the inputs and outputs of modules, and their gradients.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "hooks/observe/forward_listener.h"
#include "hooks/observe/hook_gate.h"
#include "hooks/observe/tensor_gradient.h"
#include "hooks/rows/hook_settings.h"
#include "hooks/rows/probe.h"
#include "hooks/rows/reading.h"
#include "hooks/rows/row_writer.h"
#include "hooks/rows/target_names.h"
#include "hooks/rows/watched_model.h"

namespace gradmon {

enum class Side : std::uint8_t { input, output, input_grad, output_grad };
inline constexpr std::array<const char*, 4> kSideNames = {"input", "output", "input_grad", "output_grad"};

// The selection for one module, by Side. A value.
struct ActivationChoice {
  struct Wanted {
    bool any = false;
    std::optional<TensorSelection> one;  // not set: all tensors of this side
  };
  std::array<Wanted, 4> sides;

  const Wanted& operator[](Side side) const { return sides[static_cast<std::size_t>(side)]; }
  bool any() const;
};

// Returns one choice for each name. A module that `settings.targets` names (the module itself, not one
// around it) has the selection of that target. Any other module has all its tensors if `settings.all` is
// set or a pattern of `selection` matches it. If there are patterns but no targets, `settings.all` is
// ignored. With `invert`, a module that a pattern matches has nothing; the others are chosen by targets
// and `settings.all`, or all of them if there are no targets.
std::vector<ActivationChoice> activation_choices(const ActivationSettings& settings,
                                                 const TargetSelection& selection,
                                                 const std::vector<TargetName>& names);

// The selected elements of a container. If element i of N is selected and the container has another size,
// `mismatch` says so; element i is still chosen if it exists.
struct ChosenElements {
  std::vector<const ForwardTensors::Element*> elements;
  std::string mismatch;  // a message; empty: the size fits
};
ChosenElements chosen_elements(const ActivationChoice::Wanted& wanted, const ForwardTensors& tensors);

// The end of a row's name, after `.input` or `.output`: `_{key}`; empty for a lone tensor and for the only
// element of a tuple.
std::string element_suffix(const ForwardTensors& tensors, const ForwardTensors::Element& element);

// Counts the calls of torch's communication library (c10d) and symmetric memory, which write to tensors
// without changing a version counter. While an instance exists, all calls of the process that go through
// torch's dispatcher are counted (only a backend called directly from C++ bypasses it), and each torch op
// costs about 100 ns more. Any thread.
class CollectiveCallCounter {
 public:
  CollectiveCallCounter();
  ~CollectiveCallCounter();
  CollectiveCallCounter(const CollectiveCallCounter&) = delete;
  CollectiveCallCounter& operator=(const CollectiveCallCounter&) = delete;

  // Calls counted so far in the process. A call is counted before it runs.
  std::uint64_t calls() const noexcept;
};

enum class ReuseReadings : bool { no, yes };

// Reads tensors. If the plan asks for it, reuses the reading of a tensor that is seen again, as the output of
// one module and the input of the next. Any thread. With ReuseReadings::yes, two tensors are the same if
// their storage, offset, shape, strides, type, conjugate and negative bits, version and micro step are equal
// and no communication call was made in between, because communication writes to tensors without changing
// their version. Not detected: other writes without a change of version (through `.data`, by NumPy, by a
// kernel or a communication backend called directly, or by a communication call that is in progress while the
// tensor is read). Storages are held weakly: their memory is freed, but their address is not reused.
class ReadingCache {
 public:
  ReadingCache(ReadOptions options, ReuseReadings reuse) : reuse_(reuse), options_(options) {}

  // begin_step() and end_step(): training thread. A step begins without known readings.
  void begin_step(Step step);
  void end_step() noexcept { communication_.reset(); }
  // Returns the known reading, or reads the tensor. Absent if reading failed. Call it within a step.
  Reading read(const at::Tensor& tensor, int micro_step, const std::string& name, HookFuse& fuse);
  // Forgets all known readings.
  void forget();

  struct Counts {
    std::uint64_t read = 0;
    std::uint64_t hits = 0;
  };
  Counts counts() const;

 private:
  using Key = std::tuple<const void*, std::int64_t, std::vector<std::int64_t>, std::vector<std::int64_t>,
                         std::int8_t, bool, bool, std::uint32_t, int>;
  struct Known {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    Reading reading;
  };
  Reading read_plain(const at::Tensor& tensor, int micro_step, const std::string& name, HookFuse& fuse);
  // Empty if the reading must not be reused.
  std::optional<Key> key_of(const at::Tensor& tensor, int micro_step) const;

  const ReuseReadings reuse_;
  // Both are changed by the training thread, while no read() runs. communication_ is empty without reuse:
  // counting costs each operator.
  std::optional<CollectiveCallCounter> communication_;
  ReadOptions options_;

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::uint64_t calls_ = 0;  // communication calls at the last read(); if more, known_ is cleared
  std::map<Key, Known> known_;
  Counts counts_;
};

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
    std::size_t module = kNoModule;  // as in ForwardVisit
  };

  // `fuse` must outlive the last end_step().
  ActivationRows(ReadOptions options, ReuseReadings reuse, HookFuse& fuse, std::size_t most_rows = kMostRows)
      : cache_(options, reuse), limit_(most_rows, "rows of activations"), fuse_(fuse) {}

  void begin_step(Step step = {});
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

// Reads inputs before the forward (in-place modules overwrite them), outputs after it, and gradients when
// they arrive in backward, on any thread. Keeps only numbers until the rows are written. The gradient of
// an output is the whole gradient of the tensor. The gradient of an input is the part that comes through
// this module, as in torch's full backward hook, without other parts (a residual). An input that requires
// no gradient has no gradient row. An input whose part cannot be separated, because the module gets the
// tensor twice or returns it unchanged, is counted as not applicable. A recomputed forward adds no actv
// rows, but the actv_grad rows come from its graph. If several passes go through one graph, the last
// gradient counts.
//
// Rows of each kind are in the order in which the values were read. Targets: `{module}.input` or
// `.output`, followed by `_{i}` or `_{key}` if there are several tensors, and by `@2` for a second call in
// one micro step; `{name}.output` for a tapped value. A gradient that arrives after its step has ended is
// discarded and counted as not applicable.
class ActivationProbe : public Probe, public ForwardListener {
 public:
  // `stream` and `fuse` must outlive this.
  ActivationProbe(const HookSettings& settings, const WatchedModel& model, RecordStream& stream,
                  HookFuse& fuse);
  ~ActivationProbe() override;

  void begin_step(Step step, Readers active) override;
  void disarm() noexcept override;
  void write_rows(RowWriter& rows) override;
  ForwardListener* forward_listener() noexcept override { return this; }

  void before_forward(const ForwardVisit& visit, const ForwardTensors& inputs) override;
  void after_forward(const ForwardVisit& visit, const ForwardTensors& outputs) override;
  void abandoned(const ForwardVisit& visit) override;
  void tapped(const ForwardVisit& within, std::string_view name, const at::Tensor& tensor) override;
  void gradients_in_graph(const ForwardVisit& visit, GraphSide side,
                          const ForwardTensors& gradients) override;

  // The number of tensors read, and of readings reused.
  ReadingCache::Counts readings() const { return rows_->counts(); }

 private:
  static constexpr std::size_t kMostTappedNames = std::size_t{1} << 16U;  // per plan

  struct Target {
    std::string name;  // in the rows
    int vpp_stage = 0;
    ActivationChoice choice;
  };
  // The inputs of a forward that is running. Holds no tensor.
  struct Call {
    std::vector<ActivationRows::Row> rows;
    std::vector<GradientSource> sources;  // of each row
    std::uint64_t first_node = 0;         // next_node() before the forward
  };

  ActivationRows::Row row(const Target& target, const ForwardVisit& visit, Side side,
                          const std::string& suffix) const;
  // Returns the selected elements. Warns once per target and side if the selection does not fit.
  std::vector<const ForwardTensors::Element*> chosen(const Target& target, Side side,
                                                     const ForwardTensors& tensors);
  void read(const Target& target, const ForwardVisit& visit, Side side, const ForwardTensors& tensors);
  Call note_inputs(const Target& target, const ForwardVisit& visit, const ForwardTensors& inputs);
  void watch_inputs(Call call, const ForwardTensors& outputs);
  void watch_outputs(const Target& target, const ForwardVisit& visit, const ForwardTensors& outputs);
  TensorGradients::Body body(ActivationRows::Row row) const;
  TensorGradients::OnFailure on_failure(const ActivationRows::Row& row) const;
  // After kMostTappedNames names, returns a target that chooses nothing.
  const Target& tapped_target(int vpp_stage, std::string_view name);

  // Constant after construction.
  const ActivationSettings settings_;
  const TargetSelection selection_;
  RecordStream& stream_;
  std::vector<Target> targets_;  // by module
  ScopeText plain_scope_;        // of plain tensors (not DTensors)

  // Own synchronisation.
  const std::shared_ptr<ActivationRows> rows_;  // hooks hold it weakly
  // By module: why it has no gradient unless one arrives; null: its forward was not seen in this step.
  std::vector<std::atomic<const char*>> unless_arrived_;
  TensorGradients gradients_;
  OngoingForwards<Call> calls_;

  std::mutex mutex_;
  // Guarded by mutex_.
  std::map<std::pair<int, std::string>, Target> tapped_;
  bool told_of_names_ = false;
  std::set<std::pair<std::string, Side>> warned_;
};

}  // namespace gradmon

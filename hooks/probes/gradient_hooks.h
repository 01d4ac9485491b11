// SPDX-License-Identifier: Apache-2.0
// Reads each parameter's gradient just after its accumulation, before another hook (DDP's) reduces it
// (grad_unreduced). Also knows which parameters took part in the step.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "hooks/rows/hook_settings.h"
#include "hooks/rows/probe.h"
#include "hooks/rows/reading.h"
#include "hooks/rows/row_writer.h"

namespace gradmon {

// One reading of a gradient.
struct GradientDelivery {
  std::size_t parameter = 0;
  std::uint64_t arrival = 0;  // from 1: order of the first deliveries in the step
  int micro_step = 0;         // set for each_micro_batch only
  Reading reading;
};

// False also if the device has not finished yet.
inline bool has_only_zeros(const TensorStats& stats) {
  return stats.outcome == TensorStats::Outcome::measured && all_zeros(stats.values);
}

// Not thread-safe; the owner locks. Reuses its memory in every step.
class GradientDeliveries {
 public:
  void begin_step() {
    count_ = 0;
    used_.reset();
  }

  std::size_t count() const { return count_; }
  // True if an update has come in this step.
  bool updated() const { return used_.has_value(); }
  // The last delivery; null if there is none since the last update.
  GradientDelivery* unused() { return count_ > used_.value_or(0) ? &deliveries_[count_ - 1] : nullptr; }

  // Adds a delivery without a reading. Invalidates earlier references.
  GradientDelivery& add() {
    if (count_++ == deliveries_.size()) deliveries_.emplace_back();
    GradientDelivery& delivery = deliveries_[count_ - 1];
    delivery.reading.has_value = false;
    return delivery;
  }
  // An update is about to use all deliveries so far.
  void mark_used() { used_ = count_; }
  // If two deliveries exist, keeps the second one's reading and the first one's arrival.
  void keep_last_of_two() {
    if (count_ != 2) return;
    std::swap(deliveries_[0].reading, deliveries_[1].reading);
    count_ = 1;
  }

  // Passes the readings that an update has used; all readings if no update came.
  template <typename Take>
  void each_used(Take take) const {
    for (std::size_t i = 0; i < used_.value_or(count_); ++i) {
      if (deliveries_[i].reading.has_value) take(deliveries_[i]);
    }
  }

 private:
  // The first `count_` belong to this step. In place: most parameters have only one.
  c10::SmallVector<GradientDelivery, 1> deliveries_;
  std::size_t count_ = 0;
  std::optional<std::size_t> used_;  // number of used ones, from the first; unset: no update yet
};

// Counts the micro batches of a step. Autograd itself knows only backward passes. A micro batch is one
// outermost backward() in which enter() was called. A pass within a pass (reentrant checkpointing) belongs to
// the enclosing one. Passes that overlap in time, on any threads, are one micro batch.
//
// Implementation: a
// graph task (one run of backward) gets a final callback that does nothing. The engine destroys the callback
// when the task ends, so its destructor reports the end of the task. If a task ends on a thread that runs
// another task, it was nested in that task, which then gets a callback, too. Otherwise it was an outermost
// one. On devices with worker threads a nested task may end on another thread, and the nested pass may then
// count as a micro batch of its own.
class MicroBatches : public std::enable_shared_from_this<MicroBatches> {
 public:
  struct Place {
    int index = 0;        // in the step, from 0
    bool begins = false;  // this call of enter() is the first in the micro batch
  };

  // Training thread. Counts from 0 again. A pass that has not ended belongs to the previous step, because
  // a device's thread may end it after backward() has returned. Exception: if this is called within a
  // pass, the open passes are the first micro batch of the new step.
  void begin_step();
  // The number of micro batches that have begun in this step.
  int count() const;
  // Returns the current micro batch. Call it within a backward pass, on the thread that runs the pass, or
  // after begin_without_pass().
  Place enter();
  // Begins a micro batch in which the program accumulates by itself, outside any pass.
  void begin_without_pass();

 private:
  using Task = const void*;  // the address of a member identifies the engine's graph task
  class End;                 // a task's final callback; may outlive the hooks, and owns this object

  static Task current_task();
  // Never call it with mutex_ held: if the engine refuses the callback, ~End runs at once and locks mutex_.
  void await_end(Task task);
  void ended(Task task) noexcept;
  bool follow(Task task);

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::unordered_set<Task> open_;
  int count_ = 0;
  bool begins_without_pass_ = false;  // until the next enter()
};

// `each_micro_batch`: the gradient that each micro batch adds. `last_of_step`: the gradient after the last
// micro batch before the last update. `nothing`: no gradient; only detects the parameters that took part.
enum class GradientReads : std::uint8_t { nothing, last_of_step, each_micro_batch };

struct GradientHookSettings {
  GradientReads reads = GradientReads::last_of_step;  // of the parameters with grad_unreduced for `readers`
  Readers readers = kForRows;
  // Micro batches per step; 1: unknown. If known, last_of_step reads in the last one only.
  int micro_batches = 1;
  ReadOptions options = {};
  std::shared_ptr<const GradientScales> scales = {};  // null: 1
  std::shared_ptr<TrainingPasses> passes = {};        // null: not counted
};

// Training thread, at step boundaries. Hook bodies run on any thread that runs a backward, including
// autograd's workers. If several threads add to one parameter at once, the reading is the gradient after the
// last of them. The hook is a PostAccumulateHook. If that is impossible (torch before 2.1, each_micro_batch,
// a main gradient, an engine's delivery), it is the accumulator's first post-hook, or its last one with a
// main gradient; then the slot owns the accumulator, because a parameter holds its own only weakly. It is
// never a tensor hook, because registering a tensor hook from C++ deletes the tensor's other hooks.
//
// each_micro_batch reads the gradient that the accumulator receives: in torch 1.13 before the user's hooks
// on the parameter have changed it, in 2.x after them. If a parameter receives several gradients in one
// micro batch (a tied weight under reentrant checkpointing), its reading is the gradient accumulated in
// the step so far. The log says so once.
//
// A gradient that arrives after an update of its parameter counts only if the parameter is updated again in
// the step. Otherwise no optimizer uses it: another optimizer's backward has added it (a generator's, to its
// discriminator). Without any update in the step, every gradient counts.
//
// For a parameter with a main gradient, the hook is the last one. It reads the main gradient if the
// parameter's own gradient is gone by then, or if a fused kernel writes the main gradient only. Otherwise
// it reads the own gradient. This is right if the program moves the own gradient once, after all micro
// batches. If the program moves it after each micro batch, the parameter is not applicable, because
// neither tensor then holds the whole gradient.
//
// Code may also compute a gradient by torch.autograd.grad() and add it to `grad` itself, as pipelines do if
// they split a backward. No hook runs then: see note_accumulated(). each_micro_batch then cannot be read.
//
// If a parameter has post-accumulate hooks of other code, in which frameworks reduce, our hook comes before
// them; each_micro_batch then reads the gradient accumulated so far.
//
// For a parameter that FSDP gathers for each forward, the hook is on the gathered tensor, from gathered()
// until the step ends. It reads that tensor's gradient before the reducing hook, and adds the gradient that
// FSDP has accumulated elsewhere. A parameter in a flat tensor (FSDP1) took part if its run of the gradient
// is not all zeros, before or after reduction.
//
// A parameter whose gradient a framework takes away before the accumulator's hook is read by deliver(): see
// UnreducedSource. With UnreducedSource::delivered_accumulated, a gradient of zeros is delivered for a
// parameter that did not take part, too; it makes no row unless the accumulator has fired.
//
// last_of_step with known `micro_batches`: a parameter that the last micro batch does not reach is read
// when the last micro batch begins; if the program has changed its gradient by then, it is not applicable. If
// a step has fewer micro batches than promised, the parameters not yet read are counted as not applicable,
// because their gradients may already be reduced. From then on every delivery is read. An update before the
// last micro batch has the same effect for the optimizer's parameters.
class GradientHooks : public Probe {
 public:
  // `watched` and `fuse` must outlive this. Attaches no hook yet.
  GradientHooks(const std::vector<WatchedTensor>& watched, GradientHookSettings settings, HookFuse& fuse);
  // Removes all hooks.
  ~GradientHooks() override;

  bool reads(UpdateReads reads) const override { return reads == UpdateReads::gradients; }
  // Other probes ask took_part() in any step.
  Readers readers() const override { return kInCollected | kInBetween; }
  // Attaches the missing hooks, also if an accumulator was replaced (`.double()`).
  void begin_step(Step step, Readers active) override;
  // Releases the accumulators, except those of frozen parameters.
  void release_hooks() noexcept override;
  // Attaches to the gathered parameters of the unit, which exist from now on and which forward uses.
  void gathered(const void* unit) override;
  void before_update(const Update& update) override;
  void disarm() noexcept override;
  void write_rows(RowWriter& rows) override;

  // True once a hook has seen a gradient in this step.
  bool any_arrived() const noexcept { return any_arrived_.load(std::memory_order_relaxed); }
  // Reads the gradient of a parameter whose source is not its accumulator. Any thread that runs a backward,
  // or the training thread; must not run while a step begins or ends.
  void deliver(std::size_t parameter, const at::Tensor& gradient) noexcept;

  // For note_accumulated(). `leaves`: their TensorImpls.
  void accumulated(const std::unordered_set<const void*>& leaves) noexcept;

  // Returns true if the parameter has taken part in this step so far: its accumulator fired, or its gradient
  // was replaced or written since the step began and is not all zeros (zero_grad alone does not count). If a
  // device has not answered yet, returns true, and the parameter's rows depend on unless_zeros().
  bool took_part(std::size_t parameter);
  // Call it after write_rows(): the argument of RowWriter::write() for the rows of the parameter.
  UnlessZeros unless_zeros(std::size_t parameter) const;

 private:
  class Slot;

  bool skips(int micro_step) const { return micro_step + 1 < settings_.micro_batches; }
  double scale(int vpp_stage) const { return settings_.scales ? settings_.scales->of(vpp_stage) : 1; }
  void begin_last_micro_batch(const Slot& delivered);
  void count_pass(const Slot& delivered) noexcept;
  void order_deliveries();
  // For the memory of slots whose turn comes soon.
  void ask_for_slot_after(std::size_t parameter) const noexcept;
  void ask_for_next(std::size_t parameter) const noexcept;
  void count_unread(RowWriter& rows);

  // Constant after construction, except that the training thread sets `micro_batches`, `options.step` and
  // active_ while disarmed.
  const std::vector<WatchedTensor>& watched_;
  HookFuse& fuse_;
  GradientHookSettings settings_;
  Readers active_ = 0;
  // Own synchronisation.
  std::map<int, std::shared_ptr<MicroBatches>>
      micro_batches_;  // by vpp_stage: each chunk has its own backward passes
  std::atomic<bool> armed_{false};
  // True: in this step a hook has seen a gradient. False: the program may have filled the gradients by other
  // means (the replay of a CUDA graph, `grad.data`), which leave no mark.
  std::atomic<bool> any_arrived_{false};
  std::atomic<std::uint64_t> arrivals_{0};
  std::atomic<const Slot*> leader_{nullptr};  // its parameter got a gradient first in this step
  std::atomic<bool> repeated_{false};         // a parameter received several gradients in one micro batch
  StepLimit limit_;                           // deliveries per parameter
  // By parameter: the one whose gradient came after it in the last step, as it mostly does again.
  std::vector<std::atomic<std::size_t>> next_;
  // Training thread only.
  bool repeats_logged_ = false;
  std::vector<const GradientDelivery*> ordered_;  // of the last step, by arrival
  // Held during a delivery if it may read another parameter, too. Lock it before the mutex of a slot, which
  // guards the slot's state of the step.
  std::mutex mutex_;
  std::vector<std::unique_ptr<Slot>> slots_;  // Keep last: detaches before the rest is destroyed.
};

// The program has added one micro batch's gradients to these leaves by itself, outside backward(). Any
// thread, without the GIL; leaves that no armed GradientHooks watch are ignored.
void note_accumulated(const std::vector<at::Tensor>& leaves) noexcept;

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// Reads each parameter's gradient just after its accumulation, before another hook (DDP's) reduces it
// (grad_unreduced). Also knows which parameters took part in the step.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "hooks/gradients/micro_batches.h"
#include "hooks/rows/hook_settings.h"
#include "hooks/rows/probe.h"
#include "hooks/rows/reading.h"

namespace gradmon {

// `each_micro_batch`: what each micro batch adds. `last_of_step`: the gradient after the last one.
// `nothing`: only which parameters took part.
enum class GradientReads : std::uint8_t { nothing, last_of_step, each_micro_batch };

struct GradientHookSettings {
  GradientReads reads = GradientReads::last_of_step;
  // Micro batches per step, if the program has said it; last_of_step then reads only in the last one.
  // 1: unknown.
  int micro_batches = 1;
  double eps = 1e-8;
  std::shared_ptr<const GradientScale> scale = {};  // null: 1
};

// One reading of a gradient.
struct GradientDelivery {
  std::size_t parameter = 0;
  std::uint64_t arrival = 0;  // from 1: order of the first deliveries in the step
  int micro_step = 0;         // 0 but for each_micro_batch
  Reading reading;
};

// Training thread, at step boundaries, but for the hook bodies, which also run
// on autograd's workers, and on any thread that runs a backward: of several that
// add to one parameter at once, the reading is what the last of them left. Owns
// the gradient accumulators, which a parameter holds weakly; the hook is the first
// of Node::post_hooks() and never one of the tensor's own hooks, which it would
// delete.
//
// each_micro_batch reads what the accumulator was given, in torch 1.13 before
// the user's own hooks on the parameter have changed it, in 2.x after them. A
// parameter that is given to twice in one micro batch (a tied weight under
// reentrant checkpointing) has the gradient as accumulated in the step so far
// instead, and is counted in repeated(); the log says so once.
//
// A parameter with a main gradient has that read where its own is gone by then (the hook is
// the last one there), or was never one (a fused kernel's). Its own stands where
// the program moves it once, after all micro batches; where it does so after each, it is not
// applicable: what the main gradient lacks cannot be told.
//
// last_of_step with `micro_batches` known: a parameter that the last micro batch
// does not reach is read when that one begins. A step that has fewer micro
// batches than were promised has no gradient of the parameters that were not
// read (never a wrong one: they may be reduced by the time this is known);
// they are counted as not applicable, and from then on every delivery is read.
class GradientHooks : public Probe {
 public:
  // `watched` and `fuse` must outlive it. Attaches no hook yet.
  GradientHooks(const std::vector<Watched>& watched, GradientHookSettings settings, HookFuse& fuse);
  // Removes all hooks.
  ~GradientHooks() override;

  // Attaches the missing hooks, also where an accumulator was replaced (`.double()`).
  void begin_step(Step step) override;
  // Holds no accumulator in a step that is not collected, but of what is frozen.
  void rest() noexcept override;
  void disarm() noexcept override { armed_.store(false, std::memory_order_release); }
  void write_rows(RowWriter& rows) override;
  std::size_t attached() const noexcept override;

  // Whether the parameter has taken part in this step so far: its accumulator fired, or its gradient was
  // replaced or written since the step began and is not all zeros (zero_grad alone does not count).
  bool took_part(std::size_t parameter);

  // Since construction.
  std::uint64_t repeated() const noexcept { return repeated_.load(std::memory_order_relaxed); }

 private:
  class Slot;

  bool skips(int micro_step) const { return micro_step + 1 < settings_.micro_batches; }
  double scale() const { return settings_.scale ? settings_.scale->load(std::memory_order_relaxed) : 1; }
  void begin_last_micro_batch(const Slot& delivered);
  std::vector<const GradientDelivery*> deliveries() const;  // of the step, by arrival
  void count_unread(RowWriter& rows);

  // Constant after construction, but for `micro_batches`, the training thread's.
  const std::vector<Watched>& watched_;
  HookFuse& fuse_;
  GradientHookSettings settings_;
  // Own synchronisation.
  MicroBatches micro_batches_;
  std::atomic<bool> armed_{false};
  std::atomic<std::uint64_t> arrivals_{0};
  std::atomic<std::uint64_t> repeated_{0};
  // The training thread's.
  bool repeats_logged_ = false;
  // Held by a delivery where another parameter's may have to read it too; before
  // a slot's own, which guards what the slot has of the step.
  std::mutex mutex_;
  std::vector<std::unique_ptr<Slot>> slots_;  // Keep last: detaches before the rest dies.
};

}  // namespace gradmon

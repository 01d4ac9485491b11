// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "control/step.h"
#include "control/vocabulary.h"
#include "hooks/rows/target_match.h"

namespace gradmon {

// The passes of the current step, or since its last update. They show that training continues even if no step
// ends. Hooks count them, so only in collected steps. Any thread.
class TrainingPasses {
 public:
  void begin() noexcept {
    for (auto* count : {&forwards_, &backwards_, &evaluations_}) count->store(0, std::memory_order_relaxed);
  }
  // A training forward: a model's root, in training mode, with gradients. Others count as evaluation.
  enum class Forward : bool { evaluation, training };
  void forward(Forward forward) noexcept { add(forward == Forward::training ? forwards_ : evaluations_); }
  // The first parameter that got a gradient in this step gets another one.
  void backward() noexcept { add(backwards_); }

  std::int64_t training() const noexcept {
    return std::max(forwards_.load(std::memory_order_relaxed), backwards_.load(std::memory_order_relaxed));
  }
  std::int64_t evaluations() const noexcept { return evaluations_.load(std::memory_order_relaxed); }

 private:
  using Count = std::atomic<std::int64_t>;
  static void add(Count& count) noexcept { count.fetch_add(1, std::memory_order_relaxed); }

  Count forwards_{0}, backwards_{0}, evaluations_{0};
};

// Selects an input, an output or its gradient: the only tensor (`tuple_size` 0), or element `index` of
// a tuple of `tuple_size`.
struct TensorSelection {
  std::int64_t tuple_size = 0;
  std::int64_t index = 0;
};

struct ActivationTarget {
  std::string name;
  std::optional<TensorSelection> input, output, input_grad, output_grad;  // none set: all four
};

struct ActivationSettings {
  bool forward = false;   // actv
  bool backward = false;  // actv_grad
  bool all = false;       // every module; those in `targets` keep their own selection
  std::vector<ActivationTarget> targets;
};

struct CollectiveSettings {
  bool enabled = false;
  std::vector<std::string> code_lines;  // `file.py\[line\]` patterns; empty: all
  bool inputs = false;                  // cc_pre_hook
  bool log_only = false;
};

struct L2Settings {
  std::vector<std::string> attention;              // empty: none
  std::optional<std::vector<std::string>> linear;  // not set: none; empty: every module with a 2-D weight
  std::vector<std::string> router_weight;          // empty: none
  std::vector<std::string> router_logit;           // empty: none
  AxisOrder order = AxisOrder::sbhd;
  CausalMask causal = CausalMask::automatic;
};

// The factors by which the program's GradScalers multiply the losses, and so the gradients, of each model
// chunk; > 0. Any thread.
class GradientScales {
 public:
  GradientScales() { set(1); }

  // Sets the factor of all chunks.
  void set(double scale) noexcept {
    for (std::atomic<double>& one : scales_) one.store(scale, std::memory_order_relaxed);
  }
  void set(int vpp_stage, double scale) noexcept {
    scales_[place_of(vpp_stage)].store(scale, std::memory_order_relaxed);
  }
  double of(int vpp_stage) const noexcept {
    return scales_[place_of(vpp_stage)].load(std::memory_order_relaxed);
  }

 private:
  static constexpr std::size_t kPlaces = 64;  // later chunks have the last place's factor

  static std::size_t place_of(int vpp_stage) noexcept {
    return std::min(static_cast<std::size_t>(std::max(0, vpp_stage)), kPlaces - 1);
  }

  std::array<std::atomic<double>, kPlaces> scales_;
};

// The settings of a plan for the hooks. runtime/ builds them from the config. A value.
struct HookSettings {
  Revision revision;
  bool gradients = false;           // grad_unreduced, grad_reduced
  bool per_micro_batch = false;     // grad_unreduced for each micro batch
  bool weights = false;             // param_origin, param_updated
  bool moments = false;             // exp_avg, exp_avg_sq
  bool momentum_agreement = false;  // mg_direction
  bool update_histograms = false;   // update, ratio
  ActivationSettings activations;
  CollectiveSettings collectives;
  std::optional<L2Settings> l2;   // not set: not recorded
  bool module_structure = false;  // print_struct
  bool call_stacks = false;       // stack_info

  // Readings of parameters beside the rows.
  KindSet each_norm = 0;           // for kForEachNorm
  KindSet whole_norm = 0;          // for kForWholeNorm
  KindSet whole_norm_between = 0;  // for kForWholeNormBetween
  bool flight = false;             // grad_reduced for kForFlight
  bool compares_replicas = false;  // rows that another rank writes, for kForReplicas
  bool leaves_replicas = false;    // another rank writes the rows of replicas

  TargetSelection selection;
  Squash squash_name = Squash::yes;
  ValueMask ops = bit_of(Op::norm);                            // bit_of() of each statistic in the rows
  double eps = 1e-8;                                           // threshold of Op::zeros
  bool reuse_readings = false;                                 // for activations that are seen again
  std::uint32_t sample = 1;                                    // ReadOptions::sample
  int grad_acc_steps = 1;                                      // micro batches per step
  bool short_steps = false;                                    // some steps have fewer micro batches
  std::shared_ptr<const GradientScales> gradient_scales = {};  // null: 1
  std::shared_ptr<TrainingPasses> passes = {};                 // counter of the passes; null: not counted
};

}  // namespace gradmon

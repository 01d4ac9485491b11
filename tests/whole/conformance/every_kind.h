// SPDX-License-Identifier: Apache-2.0
// A small training that has rows of every kind.
#pragma once

#include <gradmon/monitor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <functional>
#include <memory>
#include <tuple>

namespace gradmon {

// The keys of a config that switch every kind on.
inline constexpr const char* kEveryKind = R"("wg_distribution": true, "monitor_mbs_grad": true,
    "param_distribution": true, "mv_distribution": true, "mg_direction": true, "xy_distribution": true,
    "all_xy": true, "cc_distribution": {"enable": true, "cc_pre_hook": true}, "recording_l2_features": true,
    "l2_targets": {"attention_hook": ["core"], "linear_hook": [], "moe_router_weight_hook": ["router"],
                   "moe_router_logit_hook": ["router"]},
    "scalars": {"loss": "records"}, "ops": ["norm", "min", "max", "mean", "nans", "zeros"])";

enum class Branch : bool { left_out, taken };

// fc1, ReLU in place; then, where the branch is taken: core (Q and K), split
// (two outputs), router on the first, fc2 twice on the second. `spare` never runs.
class EveryKindNet : public torch::nn::Module {
 public:
  EveryKindNet();
  // 6 × 8, to a loss.
  at::Tensor forward(const at::Tensor& x, Branch branch);

  std::function<void(const at::Tensor&)> communicate;  // called in the branch, if set

 private:
  struct Core : torch::nn::Module {
    at::Tensor forward(const at::Tensor& q, const at::Tensor& k);
  };
  struct Split : torch::nn::Module {
    std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x);
  };

  torch::nn::Linear fc1_;
  torch::nn::ReLU act_;
  std::shared_ptr<Core> core_;
  std::shared_ptr<Split> split_;
  torch::nn::Linear router_, fc2_, spare_;
};

// Trains on fixed numbers, of two micro batches a step.
class EveryKindTraining {
 public:
  static constexpr int kMicroBatches = 2;

  EveryKindTraining();
  // Watches the model; with communication in the branch, within a Gloo group of one.
  // `branch_of` says of each step, counted from 0, whether the branch is taken. Ends
  // where a step says that the loop may.
  void run(Monitor& monitor, int steps, const std::function<Branch(int)>& branch_of);
  int steps_made() const { return made_; }

 private:
  EveryKindNet net_;
  torch::optim::AdamW optimizer_;
  int made_ = 0;
};

}  // namespace gradmon

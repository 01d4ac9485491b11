// SPDX-License-Identifier: Apache-2.0
// A small training job with rows of every kind.
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

// The config keys that enable every kind.
inline constexpr const char* kEveryKind = R"("wg_distribution": true, "monitor_mbs_grad": true,
    "param_distribution": true, "mv_distribution": true, "mg_direction": true, "xy_distribution": true,
    "all_xy": true, "cc_distribution": {"enable": true, "cc_pre_hook": true}, "recording_l2_features": true,
    "l2_targets": {"attention_hook": ["core"], "linear_hook": [], "moe_router_weight_hook": ["router"],
                   "moe_router_logit_hook": ["router"]},
    "scalars": {"loss": "records"}, "ops": ["norm", "min", "max", "mean", "nans", "zeros"])";

enum class Branch : bool { left_out, taken };

// fc1 and an in-place ReLU. If the branch is taken, also: core (Q and K), split (two
// outputs), router on the first output, fc2 twice on the second. `spare` never runs.
class EveryKindNet : public torch::nn::Module {
 public:
  EveryKindNet();
  // From 6 × 8 to the loss.
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

// Trains on fixed inputs, with two micro batches a step.
class EveryKindTraining {
 public:
  static constexpr int kMicroBatches = 2;

  EveryKindTraining();
  // Watches the model and makes `steps` steps in a Gloo group of one rank; the branch
  // calls all_reduce. `branch_of` tells for each step, from 0, whether the branch is
  // taken. Ends earlier if Monitor::step() says that the loop may end.
  void run(Monitor& monitor, int steps, const std::function<Branch(int)>& branch_of);
  int steps_done() const { return steps_done_; }

 private:
  EveryKindNet net_;
  torch::optim::AdamW optimizer_;
  int steps_done_ = 0;
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/neutral/varied_training.h"

#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/dropout.h>
#include <ATen/record_function.h>
#include <gradmon/observe.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/utils.h>

#include "tests/hooks/gloo_ranks.h"
#include "tests/hooks/gradient_hooks_on.h"
#include "tests/training/gradient_accumulation.h"
#include "tests/training/trainable_parameters.h"

namespace gradmon {
namespace {

constexpr std::int64_t kContext = 4;

void append(std::string& bytes, const at::Tensor& tensor) {
  if (!tensor.defined()) return bytes.push_back('-');
  const at::Tensor values = tensor.detach().contiguous();
  bytes.append(static_cast<const char*>(values.data_ptr()), values.nbytes());
}

// Sets the seed before the model draws its weights.
const TransformerShape& with_seed(const TransformerShape& shape) {
  torch::manual_seed(7);
  return shape;
}

}  // namespace

std::vector<Variation> variations() {
  TransformerShape kept{1, 16, kContext};
  TransformerShape recomputed = kept;
  recomputed.experts = 12;
  recomputed.activation = Activation::relu_in_place;
  recomputed.block_values = BlockValues::recomputed;
  recomputed.head_weight = HeadWeight::token_embedding;
  return {{"kept", kept, {}}, {"recomputed", recomputed, {"norm1"}}};
}

std::vector<KindKeys> kinds_alone() {
  return {{"gradients", R"("wg_distribution": true)"},
          {"gradients of micro batches", R"("wg_distribution": true, "monitor_mbs_grad": true)"},
          {"weights", R"("param_distribution": true)"},
          {"moments", R"("mv_distribution": true)"},
          {"directions", R"("mg_direction": true)"},
          {"activations", R"("xy_distribution": true, "all_xy": true)"},
          {"communication", R"("cc_distribution": {"enable": true, "cc_pre_hook": true})"},
          {"L2 features", R"("recording_l2_features": true, "sa_order": "b,s,h,d", "l2_targets": {
              "attention_hook": ["blocks.0.attention.core"], "linear_hook": [],
              "moe_router_weight_hook": ["blocks.0.mixture.router"],
              "moe_router_logit_hook": ["blocks.0.mixture.router"]})"},
          {"scalars", R"("scalars": {"loss": "records", "local_norm": "records"})"},
          {"stacks", R"("stack_info": true)"},
          {"structure", R"("print_struct": true)"}};
}

std::string all_kinds() {
  std::string keys = R"("ops": ["norm", "min", "max", "mean", "nans", "zeros"])";
  for (const KindKeys& kind : kinds_alone()) {
    // The kind "gradients of micro batches" has the same key; the structure lets the loop end.
    if (kind.name != "gradients" && kind.name != "structure") keys += ", " + kind.keys;
  }
  return keys;
}

VariedTraining::VariedTraining(const Variation& variation, GlooGroup* group)
    : model_(with_seed(variation.shape)),
      optimizer_((freeze(model_, variation.frozen), trainable_parameters(model_)),
                 torch::optim::AdamWOptions(0.01)),
      group_(group) {}

at::Tensor VariedTraining::loss_of(int micro) {
  const at::Tensor bytes =
      (at::arange(kContext + 1, at::kLong) * 37 + steps_done_ * 13 + micro * 5).remainder(256);
  const at::Tensor logits = observe(model_)(bytes.slice(0, 0, kContext).reshape({1, kContext}));
  return at::cross_entropy_loss(at::dropout(logits, 0.1, true).view({kContext, -1}), bytes.slice(0, 1));
}

void VariedTraining::step(const std::function<void(double loss)>& update) {
  unset_gradients(trainable_parameters(model_));
  double loss_of_step = 0;
  for (int micro = 0; micro < kMicroBatches; ++micro) {
    const at::Tensor loss = loss_of(micro);
    loss.backward();
    loss_of_step += loss.item<double>();
  }
  if (group_ != nullptr) {
    for (const at::Tensor& parameter : trainable_parameters(model_)) {
      if (parameter.grad().defined()) group_->all_reduce({parameter.grad()})->wait();
    }
  }
  update(loss_of_step);
  ++steps_done_;
}

std::string VariedTraining::fingerprint() const {
  std::string bytes;
  for (const auto& item : distinct_parameters(model_)) {
    append(bytes, item.value());
    append(bytes, item.value().grad());
    bytes += std::to_string(item.value()._version()) + " ";
  }
  append(bytes, at::globalContext().defaultGenerator(at::kCPU).get_state());
  return bytes;
}

std::size_t VariedTraining::hooks() const {
  std::size_t count = (forward_entry::open() ? 1 : 0) + (at::hasGlobalCallbacks() ? 1 : 0);
  for (const auto& item : distinct_parameters(model_)) count += gradient_hooks_on(item.value());
  return count;
}

std::size_t VariedTraining::unused() const {
  std::size_t count = 0;
  for (const at::Tensor& parameter : trainable_parameters(model_))
    count += parameter.grad().defined() ? 0 : 1;
  return count;
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "tests/training/gradient_accumulation.h"

namespace gradmon {

void unset_gradients(const std::vector<at::Tensor>& parameters) {
  for (const auto& parameter : parameters) parameter.mutable_grad() = at::Tensor();
}

MicroBatchResult accumulate_gradients(CharTransformer& model, const std::vector<TextBatch>& micro_batches) {
  MicroBatchResult result;
  for (const auto& batch : micro_batches) {
    const auto loss = model.loss(batch.inputs, batch.targets) / static_cast<double>(micro_batches.size());
    auto load = model.expert_load();
    if (result.loss.defined()) {
      result.loss = result.loss + loss.detach();
      for (std::size_t i = 0; i < load.size(); ++i) {
        result.expert_load[i].tokens = result.expert_load[i].tokens + load[i].tokens;
      }
    } else {
      result = {loss.detach(), std::move(load)};
    }
    loss.backward();
  }
  return result;
}

}  // namespace gradmon

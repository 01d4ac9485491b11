// SPDX-License-Identifier: Apache-2.0
#include "tests/training/gradient_accumulation.h"

#include <ATen/ops/allclose.h>

#include "control/debian_version.h"
#include "tests/training/sample_training.h"
#include "tests/training/trainable_parameters.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

std::vector<TextBatch> split_batch(const TextBatch& whole, std::int64_t parts) {
  std::vector<TextBatch> result;
  for (std::int64_t i = 0; i < parts; ++i) {
    result.push_back({whole.inputs.chunk(parts)[static_cast<std::size_t>(i)],
                      whole.targets.chunk(parts)[static_cast<std::size_t>(i)]});
  }
  return result;
}

TEST_CASE("four micro batches give the same result as one whole batch up to rounding") {
  TransformerShape shape = small_shape();
  shape.experts = GENERATE(0, 4);
  const auto model = seeded_model(shape);
  const TextBatch batch = sample_batch(8);
  const auto at_once = accumulate_gradients(*model, {batch});
  const auto expected = gradients(*model);
  unset_gradients(trainable_parameters(*model));
  const auto in_four = accumulate_gradients(*model, split_batch(batch, 4));
  REQUIRE(at::allclose(in_four.loss, at_once.loss, 1e-5, 1e-7));
  const auto found = gradients(*model);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    REQUIRE(found[i].defined() == expected[i].defined());
    if (found[i].defined()) REQUIRE(at::allclose(found[i], expected[i], 1e-4, 1e-6));
  }
  REQUIRE(in_four.expert_load.size() == at_once.expert_load.size());
  for (std::size_t i = 0; i < at_once.expert_load.size(); ++i) {
    REQUIRE(equal_tensors({in_four.expert_load[i].tokens}, {at_once.expert_load[i].tokens}));
  }
}

TEST_CASE("an unset gradient is undefined until the next backward") {
  const auto model = seeded_model(small_shape());
  const auto parameters = trainable_parameters(*model);
  accumulate_gradients(*model, {sample_batch(1)});
  const auto first = gradients(*model);
  unset_gradients(parameters);
  REQUIRE_FALSE(parameters.front().grad().defined());
  accumulate_gradients(*model, {sample_batch(1)});
  REQUIRE(equal_tensors(gradients(*model), first));
}

}  // namespace
}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "hooks/stats/sign_agreement.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <limits>
#include <optional>

#include "control/debian_version.h"
#include "hooks/device/device_batch.h"
#include "hooks/rows/libtorch_optimizer_state.h"
#include "tests/hooks/fake_stream.h"
#include "tests/hooks/stats/thread_count.h"
#include "tests/hooks/tiny_model.h"
#include GRADMON_CATCH_HEADER

#ifdef __SANITIZE_ADDRESS__
// An allocation that is too large then fails, as it does without the sanitizer. Of all tests in this program.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}
#endif

namespace gradmon {
namespace {

std::optional<double> share_of(const at::Tensor& g, const at::Tensor& m) {
  const auto agreement = sign_agreement(g, m);
  return agreement ? std::optional(agreement->value) : std::nullopt;
}

double expected(const at::Tensor& g, const at::Tensor& m) {
  const auto signs = [](const at::Tensor& x) { return x.to(at::kDouble).sign(); };
  return ((signs(g) * signs(m)).sum().item<double>() / static_cast<double>(g.numel()) + 1) / 2;
}

// Positive and negative numbers, zeros, infinities and NaN in turn; `phase` shifts their positions.
at::Tensor mixture(std::int64_t count, std::int64_t phase, c10::ScalarType type) {
  const double inf = std::numeric_limits<double>::infinity();
  const at::Tensor values =
      at::tensor({-2.0, 0.0, 3.0, -inf, std::nan(""), 0.5, -0.0, inf, -1e-3, 7.0, 1.0}, at::kDouble);
  return values.index({(at::arange(count, at::kLong) * 7 + phase).remainder(11)}).to(type);
}

TEST_CASE("the share of agreeing signs is what the formula gives") {
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    for (const std::int64_t count : {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 1000, 1001}) {
      for (const std::int64_t phase : {0, 1, 4}) {
        const at::Tensor g = mixture(count, 0, type);
        const at::Tensor m = mixture(count, phase, type);
        CHECK(share_of(g, m) == expected(g, m));
      }
    }
  }
}

TEST_CASE("with a negated momentum the share is that of the negated gradient, on each path") {
  const at::Tensor g = mixture(1001, 0, at::kFloat);
  for (const auto type : {at::kFloat, at::kDouble}) {  // in memory, by torch's operators
    const at::Tensor m = mixture(1001, 4, type);
    CHECK(sign_agreement(g, m, Sense::negated)->value == expected(-g, m));
  }
  const at::Tensor m = mixture(1001, 4, at::kFloat);
  DeviceBatch batch;
  batch.add(pending_sign_agreement(g, m, Sense::negated));
  CHECK(batch.resolve().front().value()[0] == expected(-g, m));
}

TEST_CASE("the device path gives the same share") {
  for (const std::int64_t count : {1000, (1 << 24) + 7}) {
    const at::Tensor m = mixture(count, 4, at::kFloat);
    at::Tensor g = mixture(count, 0, at::kBFloat16);
    const double share = expected(g, m);
    const PendingScalars pending = pending_sign_agreement(g, m);
    g.zero_();
    CHECK(g.use_count() == 1);
    DeviceBatch batch;
    batch.add(pending);
    CHECK(batch.resolve().front().value()[0] == share);
  }
}

TEST_CASE("large tensors are counted exactly whatever the number of threads") {
  const at::Tensor g = mixture(3'000'001, 0, at::kFloat);
  const at::Tensor m = mixture(3'000'001, 4, at::kFloat);
  const at::Tensor positive = g.abs() + 1e-3;
  const double share = expected(g, m), all = expected(positive, positive);
  for (const int threads : {1, 3}) {
    const ThreadCount count(threads);
    CHECK(share_of(g, m) == share);
    CHECK(share_of(positive, positive) == all);
  }
}

TEST_CASE("numbers whose product underflows are compared by their signs") {
  const at::Tensor tiny = at::full({9}, 1e-42, at::kFloat);
  CHECK(share_of(tiny, tiny) == 1.0);
  CHECK(share_of(tiny, -tiny) == 0.0);
  CHECK(share_of(tiny, at::full({9}, std::nan(""), at::kFloat)) == 0.5);
}

TEST_CASE("tensors with other strides or types are compared element by element") {
  const at::Tensor g = mixture(1200, 0, at::kFloat).reshape({30, 40});
  const at::Tensor m = mixture(1200, 3, at::kFloat).reshape({30, 40});
  const double share = expected(g, m);
  CHECK(share_of(g, m.t().contiguous().t()) == share);
  CHECK(share_of(g.t(), m.t()) == share);
  CHECK(share_of(g, m.to(at::kDouble)) == share);
  const at::Tensor wide = mixture(2400, 0, at::kFloat).reshape({30, 80});
  CHECK(share_of(wide.slice(1, 0, 40), m) == expected(wide.slice(1, 0, 40), m));
}

TEST_CASE("tensors that cannot be compared give no share and no exception") {
  const at::Tensor g = at::ones({4});
  CHECK_FALSE(share_of(g, at::Tensor()));
  CHECK_FALSE(share_of(g, at::ones({5})));
  CHECK_FALSE(share_of(g, at::empty({4}, at::kMeta)));
  CHECK_FALSE(share_of(g, g.to(at::kComplexFloat)));
  CHECK_FALSE(share_of(g.to_sparse(), g));
  CHECK_FALSE(share_of(at::ones({0}), at::ones({0})));
  at::Tensor freed = at::ones({4});
  freed.storage().set_nbytes(0);
  CHECK_FALSE(share_of(g, freed));
  CHECK_FALSE(share_of(freed, g));
}

// Trains one step. Returns the mg_direction of fc2.weight; NaN if it has no row.
double mg_direction_of_step(HookSet& hooks, TinyModel& model, torch::optim::Optimizer& optimizer,
                            FakeStream& stream, std::int64_t step, double scale) {
  const LibtorchOptimizerState state(optimizer);
  stream.records.clear();
  hooks.begin_step({step}, HookSet::Collect::yes);
  model.drop_grad();
  model.backward(scale);
  hooks.before_update({}, &state);
  optimizer.step();
  hooks.after_update({}, &state);
  hooks.end_step();
  for (const Record& record : stream.records) {
    CHECK(record.kind == Kind::other);
    CHECK(record.mask == bit_of(Column::mg_direction));
    if (stream.text(record.target) == "0:fc2.weight")
      return record.values[static_cast<std::size_t>(Column::mg_direction)];
  }
  return std::nan("");
}

// Too large, the gradient has 2⁵¹ elements in 8 bytes, which reshape() would copy.
struct LargeState : OptimizerState {
  bool too_large = false;
  at::Tensor gradient_of(const at::Tensor& parameter) const override {
    return too_large ? at::ones({1, 2}).expand({std::int64_t{1} << 50, 2}) : parameter.grad();
  }
  ParameterState of(const at::Tensor& parameter) const override {
    return {gradient_of(parameter).to(at::kFloat), {}, {}};
  }
};

TEST_CASE("mg_direction compares a step's gradient with the momentum before the step") {
  TinyModel model;
  FakeStream stream;
  HookSettings settings;
  settings.momentum_agreement = true;
  HookSet hooks(settings, {model.parameters, {}}, stream);
  torch::optim::Adam optimizer({model[0], model[1], model[2], model[3]}, torch::optim::AdamOptions(0.05));
  CHECK(std::isnan(mg_direction_of_step(hooks, model, optimizer, stream, 1, 1)));
  for (std::int64_t step = 2; step <= 4; ++step) {
    TinyModel alone;
    for (std::size_t i = 0; i < 4; ++i) alone[i].set_data(model[i].detach().clone());
    alone.backward(1.0 / static_cast<double>(step));
    const double share =
        expected(alone[2].grad(), *LibtorchOptimizerState(optimizer).of(model[2]).first_moment);
    const auto scale = 1.0 / static_cast<double>(step);
    CHECK(mg_direction_of_step(hooks, model, optimizer, stream, step, scale) == share);
    CHECK(stream.records.size() == 4);
  }
}

TEST_CASE("an optimizer without momentum is counted as not applicable and training goes on") {
  TinyModel model;
  FakeStream stream;
  HookSettings settings;
  settings.momentum_agreement = true;
  HookSet hooks(settings, {model.parameters, {}}, stream);
  torch::optim::SGD optimizer({model[0], model[1], model[2], model[3]}, 0.1);
  for (std::int64_t step = 1; step <= 2; ++step)
    CHECK(std::isnan(mg_direction_of_step(hooks, model, optimizer, stream, step, 1)));
  CHECK(hooks.not_applicable() == 8);
  CHECK_FALSE(hooks.failure());
}

TEST_CASE(
    "without memory for the comparison a row is counted as not applicable, and the next step has rows") {
  TinyModel model;
  FakeStream stream;
  HookSettings settings;
  settings.momentum_agreement = true;
  HookSet hooks(settings, {model.parameters, {}}, stream);
  LargeState state;
  for (const bool too_large : {true, false}) {
    state.too_large = too_large;
    hooks.begin_step({1}, HookSet::Collect::yes);
    model.drop_grad();
    model.backward();
    hooks.before_update({}, &state);
    hooks.end_step();
    CHECK(hooks.not_applicable() == 4);
    CHECK(stream.records.size() == (too_large ? 0 : 4));
  }
  CHECK_FALSE(hooks.failure());
}

}  // namespace
}  // namespace gradmon

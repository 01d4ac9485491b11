// SPDX-License-Identifier: Apache-2.0
#include "hooks/probes/parameter_probes.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/histc.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <limits>

#include "hooks/device/device_fetch.h"
#include "hooks/rows/optimizer_state.h"
#include "hooks/stats/moment_stats.h"
#include "tests/hooks/fake_stream.h"
#include "tests/hooks/stats/thread_count.h"
#include "tests/hooks/tiny_model.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

using Names = std::vector<std::string>;

HookSettings moments() {
  HookSettings settings;
  settings.moments = true;
  return settings;
}

HookSettings momentum_agreement() {
  HookSettings settings;
  settings.momentum_agreement = true;
  return settings;
}

HookSettings everything() {
  HookSettings settings = moments();
  settings.gradients = true;
  settings.momentum_agreement = true;
  settings.weights = true;
  return settings;
}

struct Training {
  TinyModel model;
  FakeStream stream;
  HookSet hooks;
  torch::optim::Adam optimizer{{model[0], model[1], model[2], model[3]}, torch::optim::AdamOptions(0.05)};

  explicit Training(const HookSettings& settings) : hooks(settings, {model.parameters, {}}, stream) {}

  // Trains one step. `backward` runs the forward and the backward.
  template <typename Backward>
  void step(std::int64_t number, Backward backward) {
    const LibtorchOptimizerState state(optimizer);
    stream.records.clear();
    hooks.begin_step({number}, kInCollected);
    backward();
    hooks.before_update({}, &state);
    optimizer.step();
    hooks.after_update({}, &state);
    hooks.end_step();
  }
};

double moment_norm(const Training& training, std::size_t place, bool second) {
  const auto state = LibtorchOptimizerState(training.optimizer).of(*training.model.parameters[place].tensor);
  return norm_of(second ? *state.second_moment : *state.first_moment);
}

constexpr double kBeta1 = 0.8, kBeta2 = 0.9, kEps = 1e-2;

HookSettings histograms() {
  HookSettings settings;
  settings.update_histograms = true;
  return settings;
}

template <typename O>
struct HistogramTraining {
  TinyModel model;
  FakeStream stream;
  O optimizer;
  HookSet hooks{histograms(), {model.parameters, {}}, stream};

  template <typename Options>
  explicit HistogramTraining(const Options& options)
      : optimizer({model[0], model[1], model[2], model[3]}, options) {}

  void step(std::int64_t number, int updates = 1) {
    const LibtorchOptimizerState state(optimizer);
    stream.histograms.clear();
    model.drop_grad();
    hooks.begin_step({number}, kInCollected);
    model.backward();
    for (int i = 0; i < updates; ++i) {
      hooks.before_update({}, &state);
      optimizer.step();
      hooks.after_update({}, &state);
    }
    hooks.end_step();
  }
};

template <typename Options>
Options adam_options() {
  return Options(0.05).betas({kBeta1, kBeta2}).eps(kEps);
}

BinCounts counts_of(const at::Tensor& values) {
  const at::Tensor histogram = at::histc(values, 30, -1, 1);
  BinCounts counts{};
  for (std::size_t bin = 0; bin < kBins; ++bin)
    counts[bin] = static_cast<std::uint64_t>(histogram[static_cast<std::int64_t>(bin)].item<double>());
  return counts;
}

AdamBins by_torch(const ParameterState& state, double steps) {
  const at::Tensor mean = state.first_moment->to(at::kDouble) / (1 - std::pow(kBeta1, steps));
  const at::Tensor root = (state.second_moment->to(at::kDouble) / (1 - std::pow(kBeta2, steps))).sqrt();
  return {counts_of(mean / (root + kEps)), counts_of(mean / root)};
}

template <typename O, typename Options>
void check_over_steps() {
  HistogramTraining<O> training(adam_options<Options>());
  training.step(1);
  CHECK(training.stream.histograms.empty());
  for (std::int64_t step = 2; step <= 5; ++step) {
    std::vector<AdamBins> expected;
    const LibtorchOptimizerState state(training.optimizer);
    for (std::size_t i = 0; i < 4; ++i)
      expected.push_back(by_torch(state.of(training.model[i]), static_cast<double>(step - 1)));
    training.step(step);
    REQUIRE(training.stream.histograms.size() == 8);
    for (std::size_t i = 0; i < 4; ++i) {
      const std::string target = "0:" + training.model.parameters[i].name;
      CHECK(training.stream.histograms[i].kind == Kind::update);
      CHECK(training.stream.text(training.stream.histograms[i].target) == target);
      CHECK(training.stream.histograms[i].step == step);
      CHECK(training.stream.histogram(Kind::update, target)->counts == expected[i].update);
      CHECK(training.stream.histogram(Kind::ratio, target)->counts == expected[i].ratio);
    }
  }
  CHECK(training.hooks.not_applicable() == 0);
  CHECK_FALSE(training.hooks.failure());
}

TEST_CASE("moments are read before the update and the first step has none") {
  Training training(moments());
  training.step(1, [&] { training.model.backward(); });
  CHECK(training.stream.records.empty());
  for (std::int64_t step = 2; step <= 4; ++step) {
    std::vector<double> first, second;
    for (std::size_t i = 0; i < 4; ++i) {
      first.push_back(moment_norm(training, i, false));
      second.push_back(moment_norm(training, i, true));
    }
    training.model.drop_grad();
    training.step(step, [&] { training.model.backward(1.0 / static_cast<double>(step)); });
    REQUIRE(training.stream.records.size() == 8);
    for (std::size_t i = 0; i < 4; ++i) {
      const std::string target = "0:" + training.model.parameters[i].name;
      CHECK(near(training.stream.norm(Kind::exp_avg, target), first[i]));
      CHECK(near(training.stream.norm(Kind::exp_avg_sq, target), second[i]));
    }
  }
  CHECK(training.hooks.not_applicable() == 0);
}

TEST_CASE("a branch used every other step has rows of gradients and moments in those steps only") {
  for (const bool drop : {true, false}) {
    Training training(everything());
    auto& stream = training.stream;
    for (std::int64_t step = 1; step <= 6; ++step) {
      drop ? training.model.drop_grad() : training.model.zero_grad();
      const bool used = step % 2 == 0;
      training.step(step, [&] {
        training.model[3].sum().backward();
        if (used) (training.model[1] * 3).sum().backward();
      });
      const Names both{"0:fc1.bias", "0:fc2.bias"}, one{"0:fc2.bias"}, none;
      const Names& took_part = used ? both : one;
      auto sorted = stream.targets(Kind::grad_unreduced);
      std::sort(sorted.begin(), sorted.end());
      CHECK(sorted == took_part);
      CHECK(stream.targets(Kind::grad_reduced) == took_part);
      const Names& with_moments = step == 1 ? none : step == 2 ? one : took_part;
      CHECK(stream.targets(Kind::exp_avg) == with_moments);
      CHECK(stream.targets(Kind::exp_avg_sq) == with_moments);
      CHECK(stream.targets(Kind::other) == with_moments);
      CHECK(stream.targets(Kind::param_origin).size() == 4);
    }
  }
}

TEST_CASE("gradients that a replayed graph or grad.data has filled have rows, those of zeros none") {
  Training training(everything());
  training.step(1, [&] { training.model.backward(); });
  training.step(2, [&] {
    for (int i = 0; i < 4; ++i) training.model[i].grad().data().fill_(i);
  });
  const Names filled{"0:fc1.bias", "0:fc2.weight", "0:fc2.bias"};
  CHECK(training.stream.targets(Kind::grad_reduced) == filled);
  CHECK(training.stream.targets(Kind::exp_avg) == filled);
  CHECK(training.stream.targets(Kind::other) == filled);
  CHECK(training.stream.targets(Kind::param_origin).size() == 4);
}

TEST_CASE("a frozen parameter has rows of its weights only") {
  Training training(everything());
  training.step(1, [&] { training.model.backward(); });
  training.model[0].requires_grad_(false);
  training.model.zero_grad();
  training.step(2, [&] { training.model.backward(); });
  CHECK(training.stream.norm(Kind::param_origin, "0:fc1.weight") > 0);
  for (const Kind kind : {Kind::grad_unreduced, Kind::grad_reduced, Kind::exp_avg, Kind::other}) {
    const auto targets = training.stream.targets(kind);
    CHECK(targets.size() == 3);
    CHECK(std::count(targets.begin(), targets.end(), "0:fc1.weight") == 0);
  }
}

TEST_CASE("moments are read only for the parameters of the optimizer that updates") {
  Training training(moments());
  const LibtorchOptimizerState state(training.optimizer);
  for (std::int64_t step = 1; step <= 2; ++step) {
    training.hooks.begin_step({step}, kInCollected);
    training.model.drop_grad();
    training.model.backward();
    training.hooks.before_update({training.model[1]}, &state);
    training.optimizer.step();
    training.hooks.end_step();
  }
  CHECK(training.stream.targets(Kind::exp_avg) == Names{"0:fc1.bias"});
}

TEST_CASE("with several updates in a step the moments are those before the first") {
  Training training(moments());
  training.step(1, [&] { training.model.backward(); });
  training.model.drop_grad();
  const double before = moment_norm(training, 2, false);
  const LibtorchOptimizerState state(training.optimizer);
  training.hooks.begin_step({2}, kInCollected);
  for (int i = 0; i < 2; ++i) {
    training.model.backward();
    training.hooks.before_update({}, &state);
    training.optimizer.step();
  }
  training.hooks.end_step();
  CHECK(near(training.stream.norm(Kind::exp_avg, "0:fc2.weight"), before));
}

TEST_CASE_METHOD(HookedModel<moments>,
                 "an optimizer of unknown state is counted as not applicable and trips no fuse") {
  torch::optim::SGD plain({model[0]}, 0.1);
  const LibtorchOptimizerState state(plain);
  hooks.begin_step({1}, kInCollected);
  model.backward();
  hooks.before_update({model[0]}, &state);
  hooks.before_update({model[1]}, nullptr);
  hooks.end_step();
  CHECK(stream.records.empty());
  CHECK(hooks.not_applicable() == 2);
  CHECK_FALSE(hooks.failure());
}

TEST_CASE("weights converted to double have moments and gradients of that type") {
  Training training(everything());
  training.step(1, [&] { training.model.backward(); });
  training.model.drop_grad();
  for (WatchedParameter& parameter : training.model.parameters)
    parameter.tensor->set_data(parameter.tensor->detach().to(at::kDouble));
  for (auto& kept : training.optimizer.state()) {
    auto& state = static_cast<torch::optim::AdamParamState&>(*kept.second);
    state.exp_avg(state.exp_avg().to(at::kDouble));
    state.exp_avg_sq(state.exp_avg_sq().to(at::kDouble));
  }
  training.step(2, [&] { training.model.backward(); });
  CHECK(training.stream.records.size() == 7 * 4);
  for (const Record& record : training.stream.records)
    CHECK((record.kind == Kind::other || record.dtype == DType::float64));
}

#ifdef __SANITIZE_ADDRESS__
// An allocation that is too large then fails, as it does without the sanitizer. Of all tests in this program.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}
#endif

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
  hooks.begin_step({step}, kInCollected);
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

TEST_CASE_METHOD(HookedModel<momentum_agreement>,
                 "mg_direction compares a step's gradient with the momentum before the step") {
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

TEST_CASE_METHOD(HookedModel<momentum_agreement>,
                 "an optimizer without momentum is counted as not applicable and training goes on") {
  torch::optim::SGD optimizer({model[0], model[1], model[2], model[3]}, 0.1);
  for (std::int64_t step = 1; step <= 2; ++step)
    CHECK(std::isnan(mg_direction_of_step(hooks, model, optimizer, stream, step, 1)));
  CHECK(hooks.not_applicable() == 8);
  CHECK_FALSE(hooks.failure());
}

TEST_CASE_METHOD(
    HookedModel<momentum_agreement>,
    "without memory for the comparison a row is counted as not applicable, and the next step has rows") {
  LargeState state;
  for (const bool too_large : {true, false}) {
    state.too_large = too_large;
    hooks.begin_step({1}, kInCollected);
    model.drop_grad();
    model.backward();
    hooks.before_update({}, &state);
    hooks.end_step();
    CHECK(hooks.not_applicable() == 4);
    CHECK(stream.records.size() == (too_large ? 0 : 4));
  }
  CHECK_FALSE(hooks.failure());
}

TEST_CASE("update and ratio are counted from the moments before each update after the first") {
  check_over_steps<torch::optim::Adam, torch::optim::AdamOptions>();
  check_over_steps<torch::optim::AdamW, torch::optim::AdamWOptions>();
}

TEST_CASE("of several updates in a step the first is counted") {
  using torch::optim::AdamOptions;
  HistogramTraining<torch::optim::Adam> training(adam_options<AdamOptions>());
  training.step(1);
  const auto expected = by_torch(LibtorchOptimizerState(training.optimizer).of(training.model[0]), 1);
  training.step(2, 2);
  REQUIRE(training.stream.histograms.size() == 8);
  CHECK(training.stream.histogram(Kind::update, "0:fc1.weight")->counts == expected.update);
}

TEST_CASE("an optimizer without moments of Adam has no histograms and is counted as not applicable") {
  HistogramTraining<torch::optim::SGD> sgd(torch::optim::SGDOptions(0.1).momentum(0.9));
  HistogramTraining<torch::optim::RMSprop> rmsprop(torch::optim::RMSpropOptions(0.1).momentum(0.9));
  for (std::int64_t step = 1; step <= 3; ++step) {
    sgd.step(step);
    rmsprop.step(step);
  }
  CHECK(sgd.stream.histograms.empty());
  CHECK(sgd.hooks.not_applicable() == 12);
  CHECK(rmsprop.stream.histograms.empty());
  CHECK(rmsprop.hooks.not_applicable() == 12);
  CHECK_FALSE(sgd.hooks.failure());
}

// Moments of 2⁵⁰ elements in 4 bytes.
struct LargeMoments : OptimizerState {
  ParameterState of(const at::Tensor&) const override {
    const at::Tensor large = at::ones({1}).expand({std::int64_t{1} << 50});
    return {large, large, AdamStep{kBeta1, kBeta2, kEps, 1, {}}};
  }
};

TEST_CASE(
    "without memory for the histograms they are counted as not applicable, and the next step has them") {
  HistogramTraining<torch::optim::Adam> training(adam_options<torch::optim::AdamOptions>());
  training.step(1);
  const LargeMoments state;
  training.hooks.begin_step({2}, kInCollected);
  training.model.drop_grad();
  training.model.backward();
  training.hooks.before_update({}, &state);
  training.hooks.end_step();
  CHECK(training.hooks.not_applicable() == 4);
  training.step(3);
  CHECK(training.stream.histograms.size() == 8);
  CHECK_FALSE(training.hooks.failure());
}

}  // namespace
}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/histc.h>
#include <ATen/ops/ones.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <numeric>

#include "control/debian_version.h"
#include "hooks/gradients/update_histogram_probe.h"
#include "hooks/rows/libtorch_optimizer_state.h"
#include "tests/hooks/fake_stream.h"
#include "tests/hooks/tiny_model.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

constexpr double kBeta1 = 0.8, kBeta2 = 0.9, kEps = 1e-2;

HookSettings histograms() {
  HookSettings settings;
  settings.update_histograms = true;
  return settings;
}

template <typename O>
struct Training {
  TinyModel model;
  FakeStream stream;
  O optimizer;
  HookSet hooks{histograms(), {model.parameters, {}}, stream};

  template <typename Options>
  explicit Training(const Options& options) : optimizer({model[0], model[1], model[2], model[3]}, options) {}

  void step(std::int64_t number, int updates = 1) {
    const LibtorchOptimizerState state(optimizer);
    stream.histograms.clear();
    model.drop_grad();
    hooks.begin_step({number}, HookSet::Collect::yes);
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
  Training<O> training(adam_options<Options>());
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

TEST_CASE("update and ratio are counted from the moments before each update after the first") {
  check_over_steps<torch::optim::Adam, torch::optim::AdamOptions>();
  check_over_steps<torch::optim::AdamW, torch::optim::AdamWOptions>();
}

TEST_CASE("of several updates in a step the first is counted") {
  using torch::optim::AdamOptions;
  Training<torch::optim::Adam> training(adam_options<AdamOptions>());
  training.step(1);
  const auto expected = by_torch(LibtorchOptimizerState(training.optimizer).of(training.model[0]), 1);
  training.step(2, 2);
  REQUIRE(training.stream.histograms.size() == 8);
  CHECK(training.stream.histogram(Kind::update, "0:fc1.weight")->counts == expected.update);
}

TEST_CASE("an optimizer without moments of Adam has no histograms and is counted as not applicable") {
  Training<torch::optim::SGD> sgd(torch::optim::SGDOptions(0.1).momentum(0.9));
  Training<torch::optim::RMSprop> rmsprop(torch::optim::RMSpropOptions(0.1).momentum(0.9));
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
struct LargeState : OptimizerState {
  ParameterState of(const at::Tensor&) const override {
    const at::Tensor large = at::ones({1}).expand({std::int64_t{1} << 50});
    return {large, large, AdamStep{kBeta1, kBeta2, kEps, 1, {}}};
  }
};

TEST_CASE(
    "without memory for the histograms they are counted as not applicable, and the next step has them") {
  Training<torch::optim::Adam> training(adam_options<torch::optim::AdamOptions>());
  training.step(1);
  const LargeState state;
  training.hooks.begin_step({2}, HookSet::Collect::yes);
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

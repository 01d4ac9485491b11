// SPDX-License-Identifier: Apache-2.0
#include "hooks/gradients/parameter_probes.h"

#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <algorithm>

#include "control/debian_version.h"
#include "hooks/rows/libtorch_optimizer_state.h"
#include "tests/hooks/fake_stream.h"
#include "tests/hooks/tiny_model.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using Names = std::vector<std::string>;

HookSettings moments() {
  HookSettings settings;
  settings.moments = true;
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
    hooks.begin_step({number}, HookSet::Collect::yes);
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
    training.hooks.begin_step({step}, HookSet::Collect::yes);
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
  training.hooks.begin_step({2}, HookSet::Collect::yes);
  for (int i = 0; i < 2; ++i) {
    training.model.backward();
    training.hooks.before_update({}, &state);
    training.optimizer.step();
  }
  training.hooks.end_step();
  CHECK(near(training.stream.norm(Kind::exp_avg, "0:fc2.weight"), before));
}

TEST_CASE("an optimizer of unknown state is counted as not applicable and trips no fuse") {
  TinyModel model;
  FakeStream stream;
  HookSet hooks(moments(), {model.parameters, {}}, stream);
  torch::optim::SGD plain({model[0]}, 0.1);
  const LibtorchOptimizerState state(plain);
  hooks.begin_step({1}, HookSet::Collect::yes);
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

}  // namespace
}  // namespace gradmon

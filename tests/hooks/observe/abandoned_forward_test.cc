// SPDX-License-Identifier: Apache-2.0
// Forwards that throw and are retried, as with a smaller batch after running out of memory.
#include <ATen/ops/ones.h>

#include <map>
#include <stdexcept>

#include "control/debian_version.h"
#include "tests/hooks/fake_stream.h"
#include "tests/hooks/observed_model.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

struct ThrowingModel : torch::nn::Module {
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
  bool throws = false;

  ThrowingModel() {
    fc1 = register_module("fc1", torch::nn::Linear(4, 4));
    fc2 = register_module("fc2", torch::nn::Linear(4, 4));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = observe(*fc1)(x);
    tap("middle", y);
    const at::Tensor heads = y.reshape({-1, 1, 1, 4});
    attention("scores", heads, heads, Causal::no);
    if (throws) throw std::runtime_error("out of memory");
    return observe(*fc2)(y);
  }
};

HookSettings everything() {
  HookSettings settings;
  settings.activations.forward = settings.activations.backward = settings.activations.all = true;
  settings.l2.emplace();
  return settings;
}

// The number of rows with each "name/micro step".
std::map<std::string, int> row_counts(const FakeStream& stream, Kind kind) {
  std::map<std::string, int> found;
  for (const Record& record : stream.records) {
    if (record.kind == kind)
      ++found[stream.text(record.target).substr(2) + "/" + std::to_string(record.micro_step)];
  }
  return found;
}

void train(ThrowingModel& model) { observe(model)(at::ones({2, 4})).pow(2).mean().backward(); }

void train_and_throw(ThrowingModel& model) {
  model.throws = true;
  CHECK_THROWS(train(model));
  model.throws = false;
}

TEST_CASE("a forward that threw has no rows and its retry takes over its micro step") {
  ThrowingModel model;
  FakeStream stream;
  HookSet hooks(everything(), watched(model), stream);
  hooks.begin_step({1}, HookSet::Collect::yes);
  train_and_throw(model);
  train(model);
  train_and_throw(model);
  train_and_throw(model);
  train(model);
  hooks.end_step();
  CHECK(!hooks.failure());
  std::map<std::string, int> forward, backward;
  for (const char* name : {"model.input", "model.output", "fc1.input", "fc1.output", "fc2.input",
                           "fc2.output", "middle.output"}) {
    for (const char* micro_step : {"/0", "/1"}) forward[std::string(name) + micro_step] = 1;
  }
  CHECK(row_counts(stream, Kind::actv) == forward);
  // The input requires no gradient.
  for (const char* none : {"model.input/0", "model.input/1", "fc1.input/0", "fc1.input/1"})
    forward.erase(none);
  CHECK(row_counts(stream, Kind::actv_grad) == forward);
  CHECK(row_counts(stream, Kind::attention_hook) ==
        std::map<std::string, int>{{"scores.attention/0", 1}, {"scores.attention/1", 1}});
}

TEST_CASE("rows of an inner forward that threw stay if the outer forward catches the exception") {
  ThrowingModel model;
  FakeStream stream;
  HookSet hooks(everything(), watched(model), stream);
  hooks.begin_step({1}, HookSet::Collect::yes);
  const torch::nn::Module* const root = &model;
  const torch::nn::Module* const fc1 = model.fc1.get();
  forward_entry::entered(root, ModuleMode::training, {});
  forward_entry::entered(fc1, ModuleMode::training, {{{at::ones({3}), "0", 0}}, 1, false});
  forward_entry::abandoned(fc1);
  observe (*model.fc2)(at::ones({2, 4}));
  forward_entry::left(root, {});
  hooks.end_step();
  CHECK(row_counts(stream, Kind::actv) ==
        std::map<std::string, int>{{"fc1.input/0", 1}, {"fc2.input/0", 1}, {"fc2.output/0", 1}});
}

TEST_CASE("a tapped name is counted separately in each model chunk") {
  ThrowingModel first, second;
  WatchedModel both = watched(first);
  for (WatchedModule module : watched(second).modules) {
    module.vpp_stage = 1;
    both.modules.push_back(module);
  }
  FakeStream stream;
  HookSet hooks(everything(), both, stream);
  hooks.begin_step({1}, HookSet::Collect::yes);
  train(first);
  train(second);
  hooks.end_step();
  std::map<std::string, int> taps;
  for (const Record& record : stream.records) {
    const std::string text = stream.text(record.target);
    if (record.kind == Kind::actv && text.find("middle") != std::string::npos) ++taps[text];
  }
  CHECK(taps == std::map<std::string, int>{{"0:middle.output", 1}, {"1:middle.output", 1}});
  const std::vector<std::string> scores{"0:scores.attention", "1:scores.attention"};
  CHECK(stream.targets(Kind::attention_hook) == scores);
}

TEST_CASE("an attention reported in the second chunk is discarded with its abandoned forward") {
  ThrowingModel model;
  WatchedModel chunk = watched(model);
  for (WatchedModule& module : chunk.modules) module.vpp_stage = 1;
  FakeStream stream;
  HookSet hooks(everything(), chunk, stream);
  hooks.begin_step({1}, HookSet::Collect::yes);
  train_and_throw(model);
  train(model);
  hooks.end_step();
  CHECK(stream.targets(Kind::attention_hook) == std::vector<std::string>{"1:scores.attention"});
}

}  // namespace
}  // namespace gradmon

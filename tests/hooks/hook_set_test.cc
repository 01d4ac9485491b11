// SPDX-License-Identifier: Apache-2.0
#include "hooks/hook_set.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/OpaqueTensorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include <set>

#include "hooks/observe/graph_node.h"
#include "hooks/rows/optimizer_state.h"
#include "tests/hooks/fake_stream.h"
#include "tests/hooks/gradient_hooks_on.h"
#include "tests/hooks/tiny_model.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

using Names = std::vector<std::string>;

HookSettings gradients_and_weights() {
  HookSettings settings;
  settings.gradients = settings.weights = true;
  return settings;
}

void train_step(TinyModel& model, HookSet* hooks, std::int64_t step, Readers collect) {
  if (hooks) hooks->begin_step({step}, collect);
  model.zero_grad();
  model.backward();
  if (hooks) hooks->before_update({});
  model.descend();
  if (hooks) hooks->after_update({});
  if (hooks) hooks->end_step();
}

// A tensor on a device without kernels. Reading it throws.
at::Tensor unreadable(at::IntArrayRef sizes) {
  return at::detail::make_tensor<at::OpaqueTensorImpl<int>>(
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), caffe2::TypeMeta::Make<float>(),
      c10::Device(c10::DeviceType::PrivateUse1, 0), 0, sizes);
}

TEST_CASE_METHOD(HookedModel<gradients_and_weights>,
                 "weights are read just before and just after the update") {
  const double before = norm_of(model[2]);
  train_step(model, &hooks, 1, kInCollected);
  CHECK(near(stream.norm(Kind::param_origin, "0:fc2.weight"), before));
  CHECK(near(stream.norm(Kind::param_updated, "0:fc2.weight"), norm_of(model[2])));
  CHECK(before != norm_of(model[2]));
  const Names order{"0:fc1.weight", "0:fc1.bias", "0:fc2.weight", "0:fc2.bias"};
  CHECK(stream.targets(Kind::param_origin) == order);
  CHECK(stream.targets(Kind::param_updated) == order);
  CHECK(stream.targets(Kind::grad_reduced) == order);
  CHECK(stream.records.size() == 16);
}

TEST_CASE_METHOD(TinyRun, "a record carries its step and revision and shape and ops") {
  HookSettings settings = gradients_and_weights();
  settings.revision = {7};
  settings.ops = static_cast<ValueMask>(bit_of(Op::max) | bit_of(Op::nans));
  HookSet hooks(settings, {model.parameters, {}}, stream);
  train_step(model, &hooks, 12, kInCollected);
  const Record& record = stream.records.back();
  CHECK(record.step == 12);
  CHECK(record.revision == 7);
  CHECK(record.kind == Kind::param_updated);
  CHECK(record.dtype == DType::float32);
  CHECK(record.mask == settings.ops);
  CHECK(record.sequence == 3);
  CHECK(stream.text(record.shape) == "[4]");
  CHECK(stream.text(record.target) == "0:fc2.bias");
  CHECK(stream.text(stream.records.front().shape) == "[4]");
}

// The targets of the records of that kind that any of the readers gets.
Names targets_for(const FakeStream& stream, Readers readers, Kind kind) {
  Names found;
  for (const Record& record : stream.records) {
    if (record.kind == kind && (record.readers & readers) != 0) found.push_back(stream.text(record.target));
  }
  return found;
}

const Names kAllFour{"0:fc1.weight", "0:fc1.bias", "0:fc2.weight", "0:fc2.bias"};

TEST_CASE_METHOD(TinyRun,
                 "one reading of a parameter is for the rows, a norm over all and the flight recorder") {
  HookSettings settings;
  settings.gradients = true;
  settings.selection.targets = {"fc2"};
  settings.whole_norm = settings.whole_norm_between = bit_of(Kind::grad_reduced);
  settings.each_norm = bit_of(Kind::exp_avg);  // there are none
  settings.flight = true;
  HookSet hooks(settings, {model.parameters, {}}, stream);
  train_step(model, &hooks, 1, kInCollected);
  CHECK(stream.records.size() == 6);
  CHECK(targets_for(stream, kForRows, Kind::grad_reduced) == Names{"0:fc2.weight", "0:fc2.bias"});
  CHECK(targets_for(stream, kForRows, Kind::grad_unreduced).size() == 2);
  CHECK(targets_for(stream, kForWholeNorm, Kind::grad_reduced) == kAllFour);
  CHECK(targets_for(stream, kForFlight | kForWholeNormBetween, Kind::grad_reduced).empty());
  CHECK(near(stream.norm(Kind::grad_reduced, "0:fc2.weight"), norm_of(model[2].grad())));
  CHECK(stream.records.back().values[static_cast<std::size_t>(Op::nans)] == 0);

  stream.records.clear();
  train_step(model, &hooks, 2, kInBetween);
  CHECK(stream.records.size() == 4);
  CHECK(targets_for(stream, kForFlight, Kind::grad_reduced) == Names{"0:fc2.weight", "0:fc2.bias"});
  CHECK(targets_for(stream, kForWholeNormBetween, Kind::grad_reduced) == kAllFour);
  CHECK(targets_for(stream, kForRows, Kind::grad_reduced).empty());
}

TEST_CASE_METHOD(TinyRun,
                 "rows that another rank writes are read to compare them, and norms have all parameters") {
  model.parameters[0].author = RowAuthor::this_rank_unreduced_only;
  model.parameters[1].replicated = false;
  model.parameters[3].author = RowAuthor::another_rank;
  HookSettings settings = gradients_and_weights();
  settings.compares_replicas = settings.leaves_replicas = true;
  settings.whole_norm = bit_of(Kind::param_updated);
  HookSet hooks(settings, {model.parameters, {}}, stream);
  train_step(model, &hooks, 1, kInCollected);
  const Names compared{"0:fc1.weight", "0:fc2.weight"}, own{"0:fc1.bias"};
  for (const Kind kind : {Kind::grad_reduced, Kind::param_origin, Kind::param_updated}) {
    CAPTURE(name_of(kind));
    CHECK(targets_for(stream, kForReplicas, kind) == compared);
    CHECK(targets_for(stream, kForRows, kind) == own);
  }
  CHECK(targets_for(stream, kForRows, Kind::grad_unreduced).size() == 3);
  CHECK(targets_for(stream, kForReplicas, Kind::grad_unreduced).empty());
  CHECK(targets_for(stream, kForWholeNorm, Kind::param_updated) == kAllFour);
}

TEST_CASE_METHOD(TinyRun,
                 "a norm before reduction is the step's even where the rows are those of micro batches") {
  HookSettings settings;
  settings.gradients = settings.per_micro_batch = true;
  settings.grad_acc_steps = 2;
  settings.whole_norm = bit_of(Kind::grad_unreduced);
  HookSet hooks(settings, {model.parameters, {}}, stream);
  collect_update(hooks, 1, [&] {
    model.backward();
    model.backward();
  });
  CHECK(targets_for(stream, kForRows, Kind::grad_unreduced).size() == 8);
  CHECK(targets_for(stream, kForWholeNorm, Kind::grad_unreduced).size() == 4);
  for (const Record& record : stream.records) {
    if (record.readers == kForWholeNorm && stream.text(record.target) == "0:fc2.weight")
      CHECK(near(record.values[static_cast<std::size_t>(Op::norm)], norm_of(model[2].grad())));
  }
}

TEST_CASE("training gives the same bits with and without hooks and hooks draw no random numbers") {
  TinyModel alone, watched, toggled;
  FakeStream stream, of_toggled;
  HookSet hooks(gradients_and_weights(), {watched.parameters, {}}, stream);
  std::unique_ptr<HookSet> toggled_hooks;
  const auto generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor random_state = generator.get_state();
  for (std::int64_t step = 1; step <= 30; ++step) {
    if (step % 3 == 0) {
      if (toggled_hooks) {
        toggled_hooks.reset();
      } else {
        toggled_hooks = std::make_unique<HookSet>(gradients_and_weights(),
                                                  WatchedModel{toggled.parameters, {}}, of_toggled);
      }
    }
    train_step(alone, nullptr, step, Readers{0});
    train_step(watched, &hooks, step, step % 2 == 0 ? kInCollected : Readers{0});
    train_step(toggled, toggled_hooks.get(), step, kInCollected);
  }
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(at::equal(alone[i], watched[i]));
    CHECK(at::equal(alone[i], toggled[i]));
  }
  CHECK(at::equal(random_state, generator.get_state()));
  CHECK(stream.records.size() == 15 * 16);
  CHECK(!hooks.failure());
}

TEST_CASE_METHOD(HookedModel<gradients_and_weights>,
                 "each of several optimizers gives rows of its own parameters only") {
  hooks.begin_step({1}, kInCollected);
  model.backward();
  hooks.before_update({model[3], model[2], at::zeros({2})});
  hooks.after_update({model[3], model[2]});
  CHECK(stream.records.empty());
  hooks.before_update({model[0]});
  hooks.after_update({model[0]});
  hooks.end_step();
  CHECK(stream.targets(Kind::param_updated) == Names{"0:fc1.weight", "0:fc2.weight", "0:fc2.bias"});
  CHECK(stream.targets(Kind::grad_reduced) == Names{"0:fc1.weight", "0:fc2.weight", "0:fc2.bias"});
  CHECK(stream.targets(Kind::grad_unreduced).size() == 4);
}

TEST_CASE_METHOD(HookedModel<gradients_and_weights>,
                 "records tell the order in which they were read, across kinds") {
  hooks.begin_step({1}, kInCollected);
  model.zero_grad();
  model.backward();
  for (const std::size_t i : {2, 0}) {
    hooks.before_update({model[i]});
    hooks.after_update({model[i]});
  }
  hooks.end_step();
  std::map<std::int64_t, std::string> read;
  for (const Record& record : stream.records)
    read[record.read_at] += std::string(name_of(record.kind)) + " " + stream.text(record.target);
  Names order;
  for (const auto& [time, row] : read) {
    if (row.find("weight") != std::string::npos) order.push_back(row);
  }
  CHECK(read.size() == stream.records.size());  // no two at the same time
  CHECK(order == Names{"grad_unreduced 0:fc2.weight", "grad_unreduced 0:fc1.weight",
                       "grad_reduced 0:fc2.weight", "param_origin 0:fc2.weight", "param_updated 0:fc2.weight",
                       "grad_reduced 0:fc1.weight", "param_origin 0:fc1.weight",
                       "param_updated 0:fc1.weight"});
}

TEST_CASE_METHOD(HookedModel<gradients_and_weights>,
                 "with two updates in a step the rows are from before the first and after the last") {
  const double origin = norm_of(model[0]);
  hooks.begin_step({1}, kInCollected);
  for (int i = 0; i < 2; ++i) {
    model.backward();
    hooks.before_update({});
    model.descend();
    hooks.after_update({});
  }
  hooks.end_step();
  CHECK(near(stream.norm(Kind::param_origin, "0:fc1.weight"), origin));
  CHECK(near(stream.norm(Kind::param_updated, "0:fc1.weight"), norm_of(model[0])));
  CHECK(near(stream.norm(Kind::grad_reduced, "0:fc1.weight"), norm_of(model[0].grad())));
}

TEST_CASE_METHOD(HookedModel<gradients_and_weights>,
                 "a step without an update has rows of unreduced gradients only") {
  collect(hooks, 1, [&] { model.backward(); });
  CHECK(stream.records.size() == 4);
  CHECK(stream.targets(Kind::grad_unreduced).size() == 4);
}

TEST_CASE_METHOD(TinyRun, "a tied parameter is watched once under its first selected name") {
  model.parameters.push_back({"head.weight", 0, model[2]});
  HookSet all(gradients_and_weights(), {model.parameters, {}}, stream);
  CHECK(all.matches().matched.size() == 5);
  train_step(model, &all, 1, kInCollected);
  CHECK(stream.targets(Kind::param_origin) ==
        Names{"0:fc1.weight", "0:fc1.bias", "0:fc2.weight", "0:fc2.bias"});
  CHECK(stream.targets(Kind::grad_unreduced).size() == 4);
  CHECK(std::isfinite(stream.norm(Kind::grad_unreduced, "0:fc2.weight")));
  stream.records.clear();
  HookSettings head = gradients_and_weights();
  head.selection.targets = {"head"};
  HookSet one(head, {model.parameters, {}}, stream);
  collect(one, 1, [&] { model.backward(); });
  CHECK(stream.targets(Kind::grad_unreduced) == Names{"0:head.weight"});
}

TEST_CASE_METHOD(TinyRun,
                 "only enabled kinds of matching targets are read and unmatched targets are reported") {
  HookSettings settings;
  settings.weights = true;
  settings.selection.targets = {"fc1", "fc3"};
  HookSet hooks(settings, {model.parameters, {}}, stream);
  train_step(model, &hooks, 1, kInCollected);
  CHECK(stream.records.size() == 4);
  CHECK(stream.targets(Kind::param_origin) == Names{"0:fc1.weight", "0:fc1.bias"});
  REQUIRE(hooks.matches().unmatched.size() == 1);
  CHECK(hooks.matches().unmatched[0].pattern == "fc3");
}

TEST_CASE("records carry full names if two squashed ones would collide") {
  FakeStream stream;
  const auto parameter = [](const char* name) { return WatchedParameter{name, 1, at::zeros({2})}; };
  HookSettings settings;
  settings.weights = true;
  HookSet hooks(
      settings,
      {{parameter("m.enc.layers.0.w"), parameter("m.dec.layers.0.w"), parameter("m.dec.layers.1.w")}, {}},
      stream);
  collect(hooks, 1, [&] { hooks.before_update({}); });
  CHECK(stream.targets(Kind::param_origin) ==
        Names{"1:m.enc.layers.0.w", "1:m.dec.layers.0.w", "1:m.dec.layers.1.w"});
}

TEST_CASE("a tensor that another rank of the group writes is not read here") {
  TinyModel model;
  model.parameters[0].author = RowAuthor::another_rank;
  model.parameters[1].author = RowAuthor::this_rank_unreduced_only;
  FakeStream stream;
  HookSet hooks(gradients_and_weights(), {model.parameters, {}}, stream);
  train_step(model, &hooks, 1, kInCollected);
  const Names own{"0:fc2.weight", "0:fc2.bias"};
  CHECK(stream.targets(Kind::grad_reduced) == own);
  CHECK(stream.targets(Kind::param_origin) == own);
  CHECK(stream.targets(Kind::param_updated) == own);
  const Names unreduced = stream.targets(Kind::grad_unreduced);
  CHECK(std::set<std::string>(unreduced.begin(), unreduced.end()) ==
        std::set<std::string>{"0:fc1.bias", "0:fc2.weight", "0:fc2.bias"});
}

TEST_CASE("a meta tensor is counted as not applicable and a full stream trips no fuse") {
  FakeStream stream;
  HookSettings settings;
  settings.weights = true;
  HookSet hooks(settings,
                {{{"meta", 0, at::empty({3}, at::TensorOptions(at::kMeta))},
                  {"empty", 0, at::empty({0})},
                  {"real", 0, at::zeros({3})}},
                 {}},
                stream);
  stream.full = true;
  collect(hooks, 1, [&] { hooks.before_update({}); });
  CHECK(hooks.not_applicable() == 1);
  CHECK(!hooks.failure());
}

TEST_CASE_METHOD(TinyRun, "a tensor that torch cannot read is counted and the others are read") {
  model.parameters.push_back({"opaque", 0, unreadable({2})});
  HookSet hooks(gradients_and_weights(), {model.parameters, {}}, stream);
  hooks.begin_step({1}, kInCollected);
  model.backward();
  model[0].mutable_grad() = unreadable({8, 16});
  run_gradient_hook_on(model[0]);
  model.drop_grad();
  hooks.before_update({});
  hooks.end_step();
  CHECK_FALSE(hooks.failure());
  CHECK(stream.targets(Kind::grad_unreduced).size() == 3);
  CHECK(stream.targets(Kind::param_origin).size() == 4);
  CHECK(hooks.not_applicable() == 2);
}

// Throws when it is asked for moments.
struct ThrowingState : OptimizerState {
  ParameterState of(const at::Tensor&) const override { throw std::runtime_error("no state"); }
};

TEST_CASE_METHOD(TinyRun, "a failure in a hook body trips the fuse and training goes on") {
  HookSettings settings = gradients_and_weights();
  settings.moments = true;
  HookSet hooks(settings, {model.parameters, {}}, stream);
  const at::Tensor pending = model.loss();  // holds the accumulators
  hooks.begin_step({1}, kInCollected);
  model.backward();
  const ThrowingState state;
  hooks.before_update({}, &state);
  REQUIRE(hooks.failure());
  CHECK(hooks.failure()->cause == "no state");

  model.descend();
  hooks.after_update({});
  hooks.end_step();
  CHECK(stream.records.empty());
  train_step(model, &hooks, 2, kInCollected);
  CHECK(stream.records.empty());
  CHECK(gradient_hooks_on(model[0]) == 0);
}

TEST_CASE_METHOD(TinyRun, "a stream that fails when hooks attach leaves no hook attached") {
  const at::Tensor pending = model.loss();  // holds the accumulators
  stream.targets_fail = true;
  HookSet hooks(gradients_and_weights(), {model.parameters, {}}, stream);
  REQUIRE(hooks.failure());
  CHECK(hooks.failure()->cause == "no more targets");
  hooks.begin_step({1}, kInCollected);
  for (std::size_t i = 0; i < 4; ++i) CHECK(gradient_hooks_on(model[i]) == 0);
  train_step(model, &hooks, 2, kInCollected);
  CHECK(stream.records.empty());
}

TEST_CASE_METHOD(TinyRun, "a stream that fails when rows are written trips the fuse") {
  stream.shapes_fail = true;
  HookSet hooks(gradients_and_weights(), {model.parameters, {}}, stream);
  train_step(model, &hooks, 1, kInCollected);
  REQUIRE(hooks.failure());
  CHECK(hooks.failure()->cause == "no more shapes");
}

TEST_CASE_METHOD(HookedModel<gradients_and_weights>,
                 "calls out of order and a step that did not end give no rows") {
  hooks.end_step();
  hooks.before_update({});
  hooks.after_update({});
  CHECK(stream.records.empty());
  hooks.begin_step({1}, kInCollected);
  model.backward();
  collect(hooks, 2, [&] { hooks.end_step(); });
  CHECK(stream.records.empty());
}

}  // namespace
}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "hooks/probes/gradient_hooks.h"

#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include <thread>

#include "hooks/observe/graph_node.h"
#include "tests/hooks/fake_stream.h"
#include "tests/hooks/gradient_hooks_on.h"
#include "tests/hooks/tiny_model.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;
using Names = std::vector<std::string>;

HookSettings gradients_only() {
  HookSettings settings;
  settings.gradients = true;
  return settings;
}

// Scales the gradient in place in a post-hook of its own, as DDP does.
class Reducer : public torch::autograd::FunctionPostHook {
 public:
  explicit Reducer(at::Tensor parameter) : parameter_(std::move(parameter)) {}
  variable_list operator()(const variable_list& outputs, const variable_list&) override {
    const c10::NoGradGuard no_grad;
    parameter_.mutable_grad().mul_(0.25);
    return outputs;
  }

 private:
  at::Tensor parameter_;
};

double norm_in(const Record& record) { return record.values[static_cast<std::size_t>(Op::norm)]; }

NodePointer accumulator_of(const at::Tensor& parameter) {
  return torch::autograd::impl::grad_accumulator(parameter);
}

void add(GradientDeliveries& deliveries, std::uint64_t arrival, std::int64_t read_at) {
  GradientDelivery& delivery = deliveries.add();
  delivery.arrival = arrival;
  delivery.reading.has_value = true;
  delivery.reading.read_at = read_at;
}

std::vector<std::int64_t> used(const GradientDeliveries& deliveries) {
  std::vector<std::int64_t> times;
  deliveries.each_used([&](const GradientDelivery& delivery) { times.push_back(delivery.reading.read_at); });
  return times;
}

using Times = std::vector<std::int64_t>;

// A parameter of which this rank holds rows 2 to 4, gathered for each forward.
TEST_CASE("the gradient of a gathered parameter is read whole, and the rank's part of it after reduction") {
  const at::Tensor gathered = at::linspace(-1, 1, 6 * 3).reshape({6, 3}).requires_grad_();
  const at::Tensor held = gathered.detach().slice(0, 2, 4).clone().requires_grad_();
  ParameterSharding sharding;
  const int unit = 0;
  bool is_gathered = false;
  sharding.unit = &unit;
  sharding.unsharded = [&] { return UnshardedParameter{is_gathered ? gathered : at::Tensor(), {}}; };
  WatchedParameter parameter;
  parameter.name = "w";
  parameter.tensor = held;
  parameter.sharding = std::make_shared<const ParameterSharding>(sharding);
  FakeStream stream;
  HookSet hooks(gradients_only(), {{parameter}, {}}, stream);
  const auto reducer = accumulator_of(gathered);
  reducer->add_post_hook(std::make_unique<Reducer>(gathered));
  for (const std::int64_t step : {0, 1}) {
    stream.records.clear();
    hooks.begin_step({step}, kInCollected);
    hooks.gathered(&unit);  // not there yet
    is_gathered = true;
    hooks.gathered(&unit);
    gathered.pow(2).sum().backward();  // 2 x
    const c10::NoGradGuard no_grad;
    held.mutable_grad() = gathered.grad().slice(0, 2, 4).clone();
    gathered.mutable_grad().reset();
    hooks.before_update({});
    hooks.end_step();
    REQUIRE(stream.records.size() == 2);
    REQUIRE(near(norm_in(stream.records[0]), norm_of(gathered * 2)));
    REQUIRE(near(norm_in(stream.records[1]), norm_of(held * 0.5)));
  }
  hooks.begin_step({2}, Readers{0});
  REQUIRE(reducer->post_hooks().size() == 1);
}

TEST_CASE("several parameters in one flat tensor have a row each, without the padding between them") {
  const at::Tensor gathered = at::linspace(1, 9, 9).requires_grad_();  // 2x2, 1 element of padding, 4
  const at::Tensor held = gathered.detach().slice(0, 3, 9).clone().requires_grad_();
  const auto parameter = [&](const char* name, ElementRun of_gathered, std::vector<std::int64_t> sizes,
                             ElementRun run) {
    ParameterSharding sharding;
    sharding.unsharded = [&] { return UnshardedParameter{gathered, {}}; };
    sharding.unsharded_run = of_gathered;
    sharding.unsharded_sizes = std::move(sizes);
    sharding.run = run;
    WatchedParameter one;
    one.name = name;
    one.tensor = held;
    one.sharding = std::make_shared<const ParameterSharding>(sharding);
    return one;
  };
  FakeStream stream;
  HookSettings settings = gradients_only();
  settings.weights = true;
  HookSet hooks(settings, {{parameter("a", {0, 4}, {2, 2}, {0, 1}), parameter("b", {5, 4}, {4}, {2, 4})}, {}},
                stream);
  hooks.begin_step({0}, kInCollected);
  hooks.gathered(nullptr);
  gathered.pow(2).sum().backward();
  held.mutable_grad() = gathered.grad().slice(0, 3, 9).clone();
  hooks.before_update({held});
  hooks.end_step();
  const auto check = [&](Kind kind, const std::string& target, const at::Tensor& expected) {
    const Record* found = nullptr;
    for (const Record& record : stream.records)
      if (record.kind == kind && stream.text(record.target) == target) found = &record;
    REQUIRE(found != nullptr);
    REQUIRE(near(norm_in(*found), norm_of(expected)));
  };
  check(Kind::grad_unreduced, "0:a", gathered.slice(0, 0, 4) * 2);
  check(Kind::grad_unreduced, "0:b", gathered.slice(0, 5, 9) * 2);
  check(Kind::grad_reduced, "0:a", held.slice(0, 0, 1) * 2);
  check(Kind::grad_reduced, "0:b", held.slice(0, 2, 6) * 2);
  check(Kind::param_origin, "0:b", held.slice(0, 2, 6));
}

TEST_CASE("a gradient is read before reducing hooks that were attached earlier or later") {
  TinyModel alone;
  alone.backward();
  for (const bool reducer_first : {true, false}) {
    TinyModel model;
    FakeStream stream;
    const auto first = accumulator_of(model[0]);
    const auto second = accumulator_of(model[2]);
    if (reducer_first) first->add_post_hook(std::make_unique<Reducer>(model[0]));
    HookSet hooks(gradients_only(), {model.parameters, {}}, stream);
    if (!reducer_first) first->add_post_hook(std::make_unique<Reducer>(model[0]));
    second->add_post_hook(std::make_unique<Reducer>(model[2]));

    collect_update(hooks, 1, [&] { model.backward(); });

    for (const std::size_t i : {0, 2}) {
      const std::string target = "0:" + model.parameters[i].name;
      CHECK(near(stream.norm(Kind::grad_unreduced, target), norm_of(alone[i].grad())));
      CHECK(near(stream.norm(Kind::grad_reduced, target), 0.25 * norm_of(alone[i].grad())));
    }
    first->post_hooks().clear();
    second->post_hooks().clear();
  }
}

TEST_CASE_METHOD(TinyRun, "the program's tensor hooks run before the reading and outlive the hook set") {
  TinyModel alone;
  int fired = 0;
  model[0].register_hook([&](const at::Tensor& gradient) { return ++fired, gradient * 10; });
  {
    HookSet hooks(gradients_only(), {model.parameters, {}}, stream);
    model[2].register_hook([&](const at::Tensor& gradient) { return ++fired, gradient * 3; });
    collect(hooks, 1, [&] { model.backward(); });
  }
  alone.backward();
  CHECK(fired == 2);
  CHECK(near(stream.norm(Kind::grad_unreduced, "0:fc1.weight"), 10 * norm_of(alone[0].grad())));
  CHECK(near(stream.norm(Kind::grad_unreduced, "0:fc2.weight"), 3 * norm_of(alone[2].grad())));
  model.backward();
  CHECK(fired == 4);
}

// A gradient that another optimizer's backward adds after the update.
TEST_CASE_METHOD(HookedModel<gradients_only>,
                 "a gradient that arrives after the last update of its parameter is in no row") {
  TinyModel alone;
  hooks.begin_step({1}, kInCollected);
  alone.backward();
  model.backward();
  hooks.before_update({model[2], model[3]});
  hooks.after_update({model[2], model[3]});
  model.backward(0.5);
  hooks.before_update({model[0]});
  hooks.end_step();
  const double of_first = norm_of(alone[2].grad());
  alone.backward(0.5);
  CHECK(near(stream.norm(Kind::grad_unreduced, "0:fc2.weight"), of_first));
  CHECK(near(stream.norm(Kind::grad_reduced, "0:fc2.weight"), of_first));
  CHECK(near(stream.norm(Kind::grad_unreduced, "0:fc1.weight"), norm_of(alone[0].grad())));
  INFO("no optimizer has stepped with it");
  CHECK(near(stream.norm(Kind::grad_unreduced, "0:fc1.bias"), norm_of(alone[1].grad())));
}

TEST_CASE_METHOD(TinyRun, "an update also counts where another rank writes the reduced gradient") {
  TinyModel alone;
  for (WatchedParameter& parameter : model.parameters) parameter.author = RowAuthor::this_rank_unreduced_only;
  HookSet hooks(gradients_only(), {model.parameters, {}}, stream);
  hooks.begin_step({1}, kInCollected);
  alone.backward();
  model.backward();
  hooks.before_update({model[0], model[1]});
  hooks.after_update({model[0], model[1]});
  model.backward(0.5);
  hooks.end_step();
  CHECK(near(stream.norm(Kind::grad_unreduced, "0:fc1.weight"), norm_of(alone[0].grad())));
  CHECK(stream.targets(Kind::grad_unreduced).size() == 4);
  CHECK(stream.targets(Kind::grad_reduced).empty());
}

TEST_CASE_METHOD(HookedModel<gradients_only>,
                 "of several updates of a parameter in a step the gradient before the last one counts") {
  TinyModel alone;
  hooks.begin_step({1}, kInCollected);
  for (const double scale : {1.0, 3.0, 0.5}) {
    model.drop_grad();
    model.backward(scale);
    hooks.before_update({});
    hooks.after_update({});
  }
  model.backward();
  hooks.end_step();
  alone.backward(0.5);
  CHECK(stream.targets(Kind::grad_unreduced).size() == 4);
  CHECK(near(stream.norm(Kind::grad_unreduced, "0:fc1.weight"), norm_of(alone[0].grad())));
  CHECK(near(stream.norm(Kind::grad_reduced, "0:fc1.weight"), norm_of(alone[0].grad())));
  CHECK(stream.records[0].sequence == 0);
}

TEST_CASE_METHOD(HookedModel<gradients_only>,
                 "a parameter that gets its first gradient of the step after its update has no row") {
  hooks.begin_step({1}, kInCollected);
  model[3].sum().backward();
  hooks.before_update({});
  model.backward();
  hooks.end_step();
  CHECK(stream.targets(Kind::grad_unreduced) == Names{"0:fc2.bias"});
  CHECK(stream.targets(Kind::grad_reduced) == Names{"0:fc2.bias"});
  CHECK(stream.norm(Kind::grad_unreduced, "0:fc2.bias") == 2);

  collect(hooks, 2, [&] { model.backward(); });
  CHECK(stream.targets(Kind::grad_unreduced).size() == 1 + 4);
}

TEST_CASE_METHOD(TinyRun,
                 "with grad_acc_steps an update before the last micro batch leaves the gradient unread") {
  HookSettings settings = gradients_only();
  settings.grad_acc_steps = 4;
  HookSet hooks(settings, {model.parameters, {}}, stream);
  hooks.begin_step({1}, kInCollected);
  for (int pass = 0; pass < 2; ++pass) model[3].sum().backward();
  hooks.before_update({model[3]});
  for (int pass = 0; pass < 2; ++pass) model.backward();
  hooks.before_update({model[0], model[1], model[2]});
  hooks.end_step();
  CHECK(stream.targets(Kind::grad_unreduced).size() == 3);
  CHECK(std::isnan(stream.norm(Kind::grad_unreduced, "0:fc2.bias")));
  CHECK(hooks.not_applicable() == 1);
}

TEST_CASE_METHOD(HookedModel<gradients_only>, "rows are in the order in which gradients first arrived") {
  hooks.begin_step({1}, kInCollected);
  (model[1] * 2).sum().backward();
  model[3].sum().backward();
  (model[1] * 3).sum().backward();
  hooks.before_update({});
  hooks.end_step();
  CHECK(stream.targets(Kind::grad_unreduced) == Names{"0:fc1.bias", "0:fc2.bias"});
  CHECK(stream.targets(Kind::grad_reduced) == Names{"0:fc1.bias", "0:fc2.bias"});
  CHECK(stream.records[0].sequence == 0);
  CHECK(stream.records[1].sequence == 1);
  CHECK(stream.records[2].sequence == 1);
  CHECK(stream.records[3].sequence == 3);
}

TEST_CASE_METHOD(HookedModel<gradients_only>, "a replaced accumulator is hooked at the next collected step") {
  const auto before = accumulator_of(model[0]);
  for (WatchedParameter& parameter : model.parameters)
    parameter.tensor->set_data(parameter.tensor->detach().to(at::kDouble));
  const auto after = accumulator_of(model[0]);
  REQUIRE(before != after);

  collect(hooks, 1, [&] { model.backward(); });
  CHECK(stream.targets(Kind::grad_unreduced).size() == 4);
  CHECK(stream.records[0].dtype == DType::float64);
  CHECK(before->post_hooks().empty());
  CHECK(gradient_hooks_on(model[0]) == 1);
}

TEST_CASE_METHOD(HookedModel<gradients_only>,
                 "a parameter without a new gradient has no row even if its gradient is defined") {
  model.backward();
  hooks.begin_step({2}, kInCollected);
  model.zero_grad();
  model[3].sum().backward();
  hooks.before_update({});
  hooks.end_step();
  REQUIRE(model[0].grad().defined());
  CHECK(stream.targets(Kind::grad_unreduced) == Names{"0:fc2.bias"});
  CHECK(stream.targets(Kind::grad_reduced) == Names{"0:fc2.bias"});
}

TEST_CASE_METHOD(HookedModel<gradients_only>,
                 "a gradient that only other ranks contributed to has a reduced row only") {
  model.backward();
  hooks.begin_step({2}, kInCollected);
  model.zero_grad();
  model[1].mutable_grad().add_(1.0);
  model[3].mutable_grad() = at::ones({4}) * 2;
  hooks.before_update({});
  hooks.end_step();
  CHECK(stream.targets(Kind::grad_unreduced).empty());
  CHECK(stream.targets(Kind::grad_reduced) == Names{"0:fc1.bias", "0:fc2.bias"});
  CHECK(stream.norm(Kind::grad_reduced, "0:fc2.bias") == 4);
}

// As a pipeline does that computes the gradients of weights apart from those of activations.
void accumulate_by_program(TinyModel& model, double scale) {
  const at::Tensor weight = model[0];
  const c10::NoGradGuard no_grad;
  at::Tensor gradient = at::full_like(weight, scale);
  weight.grad().defined() ? weight.mutable_grad().add_(gradient) : weight.mutable_grad() = gradient;
  note_accumulated({weight});
}

TEST_CASE("a gradient that the program accumulates itself is read when the program says so") {
  const int micro_batches = GENERATE(1, 2);
  TinyModel model;
  FakeStream stream;
  HookSettings settings = gradients_only();
  settings.grad_acc_steps = micro_batches;
  HookSet hooks(settings, {model.parameters, {}}, stream);
  for (const std::int64_t step : {0, 1}) {
    hooks.begin_step({step}, kInCollected);
    for (int i = 0; i < 2; ++i) accumulate_by_program(model, 1.5);
    model[0].mutable_grad().mul_(0.5);
    hooks.before_update({});
    hooks.end_step();
    model.drop_grad();
    CHECK(near(stream.norm(Kind::grad_unreduced, "0:fc1.weight"), norm_of(at::full_like(model[0], 3))));
    CHECK(near(stream.norm(Kind::grad_reduced, "0:fc1.weight"), norm_of(at::full_like(model[0], 1.5))));
    stream.records.clear();
  }
  CHECK(stream.missing.empty());
  accumulate_by_program(model, 1);  // after the step: nothing reads
  CHECK(stream.records.empty());
}

TEST_CASE_METHOD(
    HookedModel<gradients_only>,
    "a gradient that the program accumulates itself has a reason and no row if it does not say so") {
  hooks.begin_step({0}, kInCollected);
  const auto gradients = torch::autograd::grad({model.loss()}, {model[0]});
  model[0].mutable_grad() = gradients[0];
  hooks.before_update({});
  hooks.end_step();
  CHECK(stream.targets(Kind::grad_unreduced).empty());
  CHECK(stream.targets(Kind::grad_reduced) == Names{"0:fc1.weight"});
  CHECK(stream.reasons["0:fc1.weight"].find("no hook saw this rank accumulate it") == 0);
  CHECK(stream.reasons.size() == 1);
}

TEST_CASE_METHOD(TinyRun,
                 "with rows of micro batches a gradient that the program accumulates itself has a reason") {
  HookSettings settings = gradients_only();
  settings.per_micro_batch = true;
  HookSet hooks(settings, {model.parameters, {}}, stream);
  hooks.begin_step({0}, kInCollected);
  accumulate_by_program(model, 1);
  model.backward();
  hooks.before_update({});
  hooks.end_step();
  CHECK(stream.targets(Kind::grad_unreduced).size() == 4);  // of the second micro batch
  CHECK(stream.reasons["0:fc1.weight"].find("outside backward()") != std::string::npos);
  for (const Record& record : stream.records) {
    if (record.kind == Kind::grad_unreduced) CHECK(record.micro_step == 1);
  }
}

TEST_CASE("a parameter that gets its shape within a step has a row, or the reason why it has none") {
  const bool per_micro_batch = GENERATE(false, true);
  at::Tensor lazy = at::zeros({0}).requires_grad_();
  WatchedParameter parameter;
  parameter.name = "lazy.weight";
  parameter.tensor = lazy;
  FakeStream stream;
  HookSettings settings = gradients_only();
  settings.per_micro_batch = per_micro_batch;
  HookSet hooks(settings, {{parameter}, {}}, stream);
  for (const std::int64_t step : {0, 1}) {
    stream.records.clear();
    hooks.begin_step({step}, kInCollected);
    if (step == 0) lazy.set_data(at::ones({3, 2}));
    lazy.pow(2).sum().backward();
    hooks.before_update({});
    hooks.end_step();
    const bool has_row = step > 0 || (!per_micro_batch && TORCH_VERSION_MAJOR >= 2);
    CHECK(stream.targets(Kind::grad_unreduced).size() == (has_row ? 1U : 0U));
    CHECK(stream.reasons.count("0:lazy.weight") == (step == 0 && !has_row ? 1U : 0U));
    stream.reasons.clear();
    lazy.mutable_grad().reset();
  }
}

TEST_CASE_METHOD(HookedModel<gradients_only>, "a gradient of zeros that backward delivers has its rows") {
  collect_update(hooks, 1, [&] { (model[3] * 0).sum().backward(); });
  CHECK(stream.norm(Kind::grad_unreduced, "0:fc2.bias") == 0);
  CHECK(stream.norm(Kind::grad_reduced, "0:fc2.bias") == 0);
}

TEST_CASE_METHOD(TinyRun, "a destroyed hook set leaves no hook") {
  at::Tensor pending = model.loss();
  {
    HookSet hooks(gradients_only(), {model.parameters, {}}, stream);
    for (std::size_t i = 0; i < 4; ++i) CHECK(gradient_hooks_on(model[i]) == 0);
    hooks.begin_step({1}, kInCollected);
    for (std::size_t i = 0; i < 4; ++i) CHECK(gradient_hooks_on(model[i]) == 1);
  }
  for (std::size_t i = 0; i < 4; ++i) CHECK(gradient_hooks_on(model[i]) == 0);
  pending.backward();
  CHECK(model[0].grad().defined());
  CHECK(stream.records.empty());
}

TEST_CASE_METHOD(TinyRun,
                 "a parameter unfrozen later is hooked and a parameter frozen later keeps its hook") {
  model[0].requires_grad_(false);
  HookSet hooks(gradients_only(), {model.parameters, {}}, stream);
  hooks.begin_step({0}, kInCollected);
  model[0].requires_grad_(true);
  model[1].requires_grad_(false);
  collect(hooks, 1, [&] { model.backward(); });
  CHECK(std::isfinite(stream.norm(Kind::grad_unreduced, "0:fc1.weight")));
  CHECK(stream.targets(Kind::grad_unreduced).size() == 3);
  hooks.begin_step({2}, kInCollected);
  model[1].requires_grad_(true);  // within the step
  model.backward();
  hooks.end_step();
  CHECK(stream.targets(Kind::grad_unreduced).size() == 7);
}

// Runs passes on several threads at once, inside a pass that has already delivered a gradient.
void overlapping_passes(const at::Tensor& first, const at::Tensor& shared) {
  const at::Tensor second = at::ones({4}).requires_grad_().clone();
  second.register_hook([&](const at::Tensor&) {
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&] {
        for (int pass = 0; pass < 4; ++pass) (shared * 2).sum().backward();
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  (first + second).sum().backward();
}

TEST_CASE("a gradient that several threads add to at once is read after the last of them") {
  const at::Tensor first = at::ones({4}).requires_grad_();
  at::Tensor shared = at::ones({1 << 18}).requires_grad_();
  for (const bool each : {false, true}) {
    HookSettings settings = gradients_only();
    settings.per_micro_batch = each;
    FakeStream stream;
    HookSet hooks(settings, {{{"first", 0, first}, {"shared", 0, shared}}, {}}, stream);
    for (std::int64_t step = 1; step <= 40; ++step) {
      stream.records.clear();
      shared.mutable_grad() = at::zeros({1 << 18});
      collect(hooks, step, [&] { overlapping_passes(first, shared); });
      REQUIRE_FALSE(hooks.failure());
      REQUIRE(near(stream.norm(Kind::grad_unreduced, "0:shared"), norm_of(shared.grad())));
    }
  }
}

#if TORCH_VERSION_MAJOR >= 2

// An accumulator keeps the stream that was current when it was made. The program's forward has to make it: on
// its own stream, which may be one that is captured into a CUDA graph.
TEST_CASE_METHOD(HookedModel<gradients_only>,
                 "a collected step makes and holds no accumulator before forward does") {
  for (const std::int64_t step : {0, 1}) {
    hooks.begin_step({step}, kInCollected);
    for (std::size_t i = 0; i < 4; ++i) CHECK(!torch::autograd::impl::try_get_grad_accumulator(model[i]));
    model.backward();
    hooks.before_update({});
    hooks.end_step();
    CHECK(stream.targets(Kind::grad_unreduced).size() == 4 * static_cast<std::size_t>(step + 1));
  }
}

// The norms among the scalars are a second set.
TEST_CASE("two hook sets on one parameter both read, and neither holds its accumulator") {
  TinyModel model;
  FakeStream first_stream, second_stream;
  HookSet second(gradients_only(), {model.parameters, {}}, second_stream);
  {
    HookSet first(gradients_only(), {model.parameters, {}}, first_stream);
    first.begin_step({0}, kInCollected);
    second.begin_step({0}, kInCollected);
    CHECK(!torch::autograd::impl::try_get_grad_accumulator(model[0]));
    model.backward();
    first.end_step();
    second.end_step();
  }
  CHECK(first_stream.targets(Kind::grad_unreduced).size() == 4);
  CHECK(second_stream.targets(Kind::grad_unreduced).size() == 4);
  second.begin_step({1}, kInCollected);
  CHECK(gradient_hooks_on(model[0]) == 1);
  model.backward();
  second.end_step();
  CHECK(first_stream.targets(Kind::grad_unreduced).size() == 4);
  CHECK(second_stream.targets(Kind::grad_unreduced).size() == 8);
  second.begin_step({2}, Readers{0});
  CHECK(gradient_hooks_on(model[0]) == 0);
}

// A hook of this kind that other C++ code makes. There is no Python that could put ours before it.
class Divide : public torch::autograd::PostAccumulateGradHook {
 public:
  void operator()(const at::Tensor& parameter) override {
    const c10::NoGradGuard no_grad;
    parameter.mutable_grad().mul_(0.25);
  }
};

TEST_CASE_METHOD(HookedModel<gradients_only>,
                 "a gradient that a hook in the place of ours may have changed has no row") {
  hooks.begin_step({0}, kInCollected);
  torch::autograd::impl::set_post_acc_grad_hooks(model[0], std::make_unique<Divide>());
  model.backward();
  hooks.before_update({model[0], model[1], model[2], model[3]});
  hooks.end_step();
  CHECK(stream.targets(Kind::grad_unreduced).size() == 3);
  CHECK(stream.targets(Kind::grad_reduced).size() == 4);
  CHECK(hooks.not_applicable() == 1);
  hooks.begin_step({1}, Readers{0});
  CHECK(gradient_hooks_on(model[0]) == 1);  // the program's own
}

TEST_CASE_METHOD(HookedModel<gradients_only>,
                 "a tensor in the place of the parameter's is read in the same step") {
  hooks.begin_step({0}, kInCollected);
  torch::autograd::impl::set_post_acc_grad_hooks(model[0], nullptr);  // as a swap leaves it
  model.backward();
  hooks.end_step();
  CHECK(stream.targets(Kind::grad_unreduced).size() == 4);
}

#endif

TEST_CASE("without an update every reading of the step counts, and none of the step before") {
  GradientDeliveries deliveries;
  for (const std::int64_t time : {10, 20}) {
    deliveries.begin_step();
    add(deliveries, 1, time);
    deliveries.add();  // not read
    add(deliveries, 3, time + 1);
    CHECK(used(deliveries) == Times{time, time + 1});
  }
}

TEST_CASE("of two deliveries the second one's reading stays with the first one's arrival") {
  GradientDeliveries deliveries;
  add(deliveries, 1, 10);
  deliveries.keep_last_of_two();
  CHECK(used(deliveries) == Times{10});
  add(deliveries, 5, 20);
  deliveries.keep_last_of_two();
  CHECK(used(deliveries) == Times{20});
  CHECK(deliveries.unused()->arrival == 1);
}

}  // namespace
}  // namespace gradmon

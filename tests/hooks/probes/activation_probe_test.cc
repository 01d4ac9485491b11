// SPDX-License-Identifier: Apache-2.0
#include "hooks/probes/activation_probe.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/sin.h>
#include <torch/nn/modules/embedding.h>

#include <thread>

#include "hooks/observe/forward_tracker.h"
#include "tests/hooks/fake_stream.h"
#include "tests/hooks/observed_model.h"
#include "tests/hooks/tiny_model.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

using Lines = std::vector<std::string>;

HookSettings activations() {
  HookSettings settings;
  settings.activations.forward = settings.activations.backward = settings.activations.all = true;
  return settings;
}

// The rows of a kind, "name/micro step", in order of arrival. Their sequence numbers must increase.
Lines rows(const FakeStream& stream, Kind kind) {
  Lines found;
  std::uint64_t last = 0;
  for (const Record& record : stream.records) {
    if (record.kind != kind) continue;
    if (!found.empty() && record.sequence <= last) return {"the sequence numbers do not increase"};
    last = record.sequence;
    found.push_back(stream.text(record.target).substr(2) + "/" + std::to_string(record.micro_step));
  }
  return found;
}

// -12345: there is no such row.
double value(const FakeStream& stream, Kind kind, const std::string& name, Op op, int micro_step = 0) {
  for (const Record& record : stream.records) {
    if (record.kind == kind && stream.text(record.target) == "0:" + name && record.micro_step == micro_step)
      return record.values[static_cast<std::size_t>(op)];
  }
  return -12345;
}

struct HookedActivations : ObservedRun {
  HookSet hooks{activations(), watched(model), stream};
};

// The model's activations with their gradients, computed by plain torch in double.
struct Reference {
  at::Tensor x, fc1_out, relu_out, mid, out;
  explicit Reference(ObservedModel& model, const at::Tensor& input) {
    const auto as_double = [](const at::Tensor& t) { return t.detach().to(at::kDouble); };
    const auto linear = [&](const torch::nn::Linear& fc, const at::Tensor& t) {
      return t.matmul(as_double(fc->weight).t()) + as_double(fc->bias);
    };
    x = as_double(input).requires_grad_(input.requires_grad());
    fc1_out = linear(model.fc1, x).requires_grad_();
    relu_out = fc1_out.relu();
    mid = linear(model.fc2, relu_out).requires_grad_();
    out = linear(model.fc2, mid);
    for (at::Tensor* t : {&fc1_out, &relu_out, &mid, &out}) {
      if (!t->requires_grad()) t->requires_grad_();
      t->retain_grad();
    }
    out.pow(2).mean().backward();
  }
};

void step(ObservedModel& model, HookSet& hooks, const at::Tensor& x, std::int64_t number = 1) {
  collect(hooks, number, [&] { observe(model)(x).pow(2).mean().backward(); });
}

const Lines kForward{"model.input/0", "fc1.input/0",  "fc1.output/0",  "relu.input/0",   "relu.output/0",
                     "fc2.input/0",   "fc2.output/0", "fc2.input@2/0", "fc2.output@2/0", "model.output/0"};

ActivationRows::Row row(const std::string& name) { return {Kind::actv, 0, name, 0, {}}; }

// A pre-norm block, with a residual connection around it.
struct Residual : torch::nn::Module {
  torch::nn::Linear norm{register_module("norm", torch::nn::Linear(4, 4))};
  torch::nn::Linear body{register_module("body", torch::nn::Linear(4, 4))};
  at::Tensor forward(const at::Tensor& x) { return x + observe(*body)(observe(*norm)(x)).tanh(); }
};

TEST_CASE_METHOD(ObservedRun,
                 "activations and their gradients are those of plain torch around an in-place module") {
  HookSettings settings = activations();
  settings.ops = 0x3f;
  HookSet hooks(settings, watched(model), stream);
  const at::Tensor x = observed_input().requires_grad_();
  const Reference plain(model, x);
  step(model, hooks, x);
  CHECK(!hooks.failure());
  CHECK(rows(stream, Kind::actv) == kForward);
  const std::vector<std::pair<std::string, at::Tensor>> all{
      {"model.input", plain.x},      {"fc1.input", plain.x},          {"fc1.output", plain.fc1_out},
      {"relu.input", plain.fc1_out}, {"relu.output", plain.relu_out}, {"fc2.input", plain.relu_out},
      {"fc2.output", plain.mid},     {"fc2.input@2", plain.mid},      {"fc2.output@2", plain.out},
      {"model.output", plain.out}};
  for (const auto& [name, tensor] : all) {
    INFO(name);
    const at::Tensor v = tensor.detach(), g = tensor.grad();
    CHECK(near(value(stream, Kind::actv, name, Op::norm), norm_of(v)));
    CHECK(near(value(stream, Kind::actv, name, Op::max), v.max().item<double>()));
    CHECK(near(value(stream, Kind::actv_grad, name, Op::norm), norm_of(g)));
    CHECK(near(value(stream, Kind::actv_grad, name, Op::min), g.min().item<double>()));
  }
  CHECK(rows(stream, Kind::actv_grad).size() == 10);
}

TEST_CASE_METHOD(HookedActivations, "an input that requires no gradient has no gradient row") {
  step(model, hooks, observed_input());
  CHECK(rows(stream, Kind::actv_grad) == Lines{"fc2.output@2/0", "model.output/0", "fc2.input@2/0",
                                               "fc2.output/0", "fc2.input/0", "relu.output/0", "relu.input/0",
                                               "fc1.output/0"});
  CHECK(hooks.not_applicable() == 0);
}

TEST_CASE("a recomputed forward adds no activation rows and one row for each gradient") {
  ObservedModel plain, checkpointed;
  checkpointed.checkpoint = true;
  FakeStream expected, stream;
  const at::Tensor x = observed_input();
  {
    HookSet hooks(activations(), watched(plain), expected);
    step(plain, hooks, x);
  }
  HookSet hooks(activations(), watched(checkpointed), stream);
  step(checkpointed, hooks, x);
  CHECK(!hooks.failure());
  CHECK(rows(stream, Kind::actv) == kForward);
  for (const char* name : {"model.output", "fc2.output@2", "fc2.input@2", "fc2.output", "fc2.input",
                           "relu.output", "relu.input", "fc1.output"}) {
    INFO(name);
    CHECK(near(stream.norm(Kind::actv_grad, std::string("0:") + name),
               expected.norm(Kind::actv_grad, std::string("0:") + name)));
  }
  CHECK(rows(stream, Kind::actv_grad).size() == 8);
}

TEST_CASE_METHOD(HookedActivations,
                 "a recomputation from the same input gives no second row of its gradient") {
  hooks.begin_step({1}, kInCollected);
  const at::Tensor hidden = observe(*model.fc1)(observed_input());
  const at::Tensor y = observe(*model.fc2)(hidden);
  y.register_hook([&](const at::Tensor& gradient) {
    const at::AutoGradMode enabled(true);
    observe (*model.fc2)(hidden);
    return gradient;
  });
  y.sum().backward();
  hooks.end_step();
  CHECK(rows(stream, Kind::actv_grad) == Lines{"fc2.output/0", "fc2.input/0", "fc1.output/0"});
}

TEST_CASE_METHOD(HookedActivations,
                 "of several backward passes through one graph the last one's gradient is recorded") {
  hooks.begin_step({1}, kInCollected);
  const at::Tensor x = observed_input().requires_grad_();
  const at::Tensor y = observe(model)(x);
  const at::Tensor slope = torch::autograd::grad({y.sum()}, {x}, {}, true, true).at(0);
  (y.pow(2).sum() + slope.pow(2).sum()).backward();
  hooks.end_step();
  CHECK(rows(stream, Kind::actv_grad).size() == 10);
  CHECK(near(value(stream, Kind::actv_grad, "model.output", Op::norm), norm_of(y * 2)));
  CHECK(near(value(stream, Kind::actv_grad, "model.input", Op::norm), norm_of(x.grad())));
}

TEST_CASE_METHOD(ObservedRun,
                 "gradients carry the micro step of their forward whatever the order of the backwards") {
  HookSettings settings = activations();
  settings.activations.forward = false;
  settings.activations.all = false;
  settings.activations.targets = {{"fc1", {}, {}, {}, TensorSelection{}}};
  settings.selection.targets = {"fc1"};
  HookSet hooks(settings, watched(model), stream);
  hooks.begin_step({1}, kInCollected);
  const at::Tensor first = observe(model)(observed_input()), second = observe(model)(observed_input(7));
  second.sum().backward();
  first.sum().backward();
  hooks.end_step();
  CHECK(rows(stream, Kind::actv_grad) == Lines{"fc1.output/1", "fc1.output/0"});
  CHECK(rows(stream, Kind::actv).empty());
}

struct Branches : torch::nn::Module {
  using Output = std::tuple<at::Tensor, std::map<std::string, at::Tensor>, int>;
  Output forward(const at::Tensor& x, const at::Tensor& ids, int) {
    return {x * 2, {{"loss", x.sum()}, {"mask", ids > 1}}, 3};
  }
};

TEST_CASE("tensors in tuples and maps have rows of their own and other elements have none") {
  Branches model;
  FakeStream stream;
  HookSet hooks(activations(), watched(model), stream);
  hooks.begin_step({1}, kInCollected);
  const auto output = observe(model)(at::ones({2, 2}).requires_grad_(), at::arange(3), 7);
  std::get<1>(output).at("loss").backward();
  hooks.end_step();
  CHECK(rows(stream, Kind::actv) == Lines{"model.input_0/0", "model.input_1/0", "model.output_0/0",
                                          "model.output_loss/0", "model.output_mask/0"});
  CHECK(rows(stream, Kind::actv_grad) == Lines{"model.output_loss/0", "model.input_0/0"});
}

TEST_CASE("a selected element is recorded even if the tuple has another size") {
  const auto names = [](TensorSelection input, TensorSelection output) {
    Branches model;
    torch::nn::Module root;
    root.register_module("b", std::shared_ptr<torch::nn::Module>(&model, [](auto*) {}));
    FakeStream stream;
    HookSettings settings = activations();
    settings.activations.all = false;
    settings.activations.targets = {{"b", input, output, {}, {}}};
    HookSet hooks(settings, watched(root), stream);
    collect(hooks, 1, [&] { observe(model)(at::ones({2, 2}), at::arange(3), 7); });
    return rows(stream, Kind::actv);
  };
  CHECK(names({3, 1}, {4, 2}) == Lines{"b.input_1/0", "b.output_mask/0"});
  CHECK(names({2, 1}, {0, 0}) == Lines{"b.input_1/0", "b.output_0/0"});
  CHECK(names({3, 2}, {9, 8}).empty());
}

TEST_CASE("targets select modules by their whole names and patterns by parts of names") {
  const auto names = [](HookSettings settings) {
    ObservedModel model;
    FakeStream stream;
    settings.activations.backward = false;
    HookSet hooks(settings, watched(model), stream);
    step(model, hooks, observed_input());
    return rows(stream, Kind::actv);
  };
  HookSettings settings = activations();
  settings.selection.target_regex = {"relu"};
  CHECK(names(settings) == Lines{"relu.input/0", "relu.output/0"});
  settings.selection.invert = true;
  CHECK(names(settings).size() == kForward.size() - 2);
  settings = activations();
  settings.activations.targets = {{"0:fc1", TensorSelection{}, {}, {}, {}}};
  settings.selection.targets = {"0:fc1"};
  CHECK(names(settings).size() == kForward.size() - 1);
  settings.activations.all = false;
  CHECK(names(settings) == Lines{"fc1.input/0"});
}

TEST_CASE_METHOD(ObservedRun, "a tapped tensor is recorded as an output under its own name") {
  HookSettings settings = activations();
  settings.activations.all = false;
  settings.activations.targets = {{"scores", {}, {}, {}, {}}};
  HookSet hooks(settings, watched(model), stream);
  const at::Tensor scores = (observed_input() * 3).requires_grad_();
  hooks.begin_step({1}, kInCollected);
  for (int i = 0; i < 2; ++i) {
    const at::Tensor doubled = scores * 2;
    tap("scores", doubled);
    tap("others", doubled);
    (doubled * (i + 1)).sum().backward();
  }
  hooks.end_step();
  CHECK(rows(stream, Kind::actv) == Lines{"scores.output/0", "scores.output@2/0"});
  CHECK(rows(stream, Kind::actv_grad) == Lines{"scores.output/0", "scores.output@2/0"});
  CHECK(near(stream.norm(Kind::actv, "0:scores.output"), norm_of(scores * 2)));
}

TEST_CASE_METHOD(ObservedRun, "a tapped tensor is read again after a kernel has written to it") {
  HookSettings settings = activations();
  settings.activations.all = false;
  settings.activations.targets = {{"before", {}, {}, {}, {}}, {"after", {}, {}, {}, {}}};
  HookSet hooks(settings, watched(model), stream);
  const at::Tensor buffer = at::ones({4});
  hooks.begin_step({1}, kInCollected);
  tap("before", buffer);
  std::fill_n(buffer.data_ptr<float>(), 4, 2.0F);  // as inductor reuses a buffer: the version stays
  tap("after", buffer);
  hooks.end_step();
  CHECK(near(stream.norm(Kind::actv, "0:before.output"), 2));
  CHECK(near(stream.norm(Kind::actv, "0:after.output"), 4));
}

TEST_CASE("a tensor that several modules see is read once if the plan reuses readings, else each time") {
  const bool reuses = GENERATE(false, true);
  ObservedModel model;
  FakeStream stream;
  HookFuse fuse;
  const WatchedModel all = watched(model);
  HookSettings settings = activations();
  settings.reuse_readings = reuses;
  ActivationProbe probe(settings, all, stream, fuse);
  ForwardTracker tracker(all.modules, 1, {&probe}, fuse);
  probe.begin_step({1}, kInCollected);
  tracker.begin_step();
  const at::Tensor y = observe(model)(observed_input());
  CHECK(probe.readings().read == (reuses ? 5U : 10U));
  CHECK(probe.readings().hits == (reuses ? 5U : 0U));
  y.sum().backward();
  // The gradients of these tensors, except x, which requires none.
  CHECK(probe.readings().read == (reuses ? 9U : 18U));
  tracker.disarm();
  probe.disarm();
  CHECK(!fuse.failure());
}

TEST_CASE("a conjugate and a negative view are never taken for the memory that they show") {
  HookFuse fuse;
  ActivationRows rows(1e-8, GENERATE(ReuseReadings::no, ReuseReadings::yes), fuse);
  const at::Tensor x = at::complex(at::full({3}, 1.0), at::full({3}, 2.0));
  rows.begin_step();
  for (const at::Tensor& one : {x, x.conj(), at::imag(x), at::imag(x.conj())})
    rows.add({Kind::actv, 0, "row", 0, {}}, one);
  rows.end_step();
  std::vector<double> means;
  for (const ActivationRows::Row& row : rows.take_rows())
    means.push_back(row.reading.stats.values[static_cast<std::size_t>(Op::mean)]);
  CHECK(means == std::vector<double>{1.5, -0.5, 2, -2});
  CHECK(!fuse.tripped());
}

TEST_CASE_METHOD(HookedActivations, "collecting keeps no tensor and no graph alive") {
  hooks.begin_step({1}, kInCollected);
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> weak;
  {
    const at::Tensor x = observed_input().requires_grad_();
    const at::Tensor y = observe(model)(x);
    weak.emplace_back(x.getIntrusivePtr());
    weak.emplace_back(y.getIntrusivePtr());
    y.sum().backward();
    weak.emplace_back(x.grad().getIntrusivePtr());
  }
  for (const auto& tensor : weak) CHECK(tensor.expired());
  hooks.end_step();
}

TEST_CASE_METHOD(HookedActivations, "a leaf that outlives the step keeps no hook") {
  const at::Tensor x = observed_input().requires_grad_();
  const auto accumulator = torch::autograd::impl::grad_accumulator(x);
  for (int i = 0; i < 3; ++i) {
    stream.records.clear();
    step(model, hooks, x);
    CHECK(accumulator->pre_hooks().empty());
    CHECK(rows(stream, Kind::actv_grad).size() == 10);
  }
}

TEST_CASE_METHOD(HookedActivations,
                 "a graph that outlives its step keeps no hook once its gradients have arrived") {
  const at::Tensor hidden = observed_input().requires_grad_() * 2;
  for (std::int64_t number = 1; number <= 3; ++number) {
    stream.records.clear();
    hooks.begin_step({number}, kInCollected);
    const at::Tensor y = observe(model)(hidden);
    torch::autograd::backward({y.sum()}, {}, true);
    hooks.end_step();
    for (const at::Tensor* tensor : {&hidden, &y}) {
      CHECK(tensor->grad_fn()->pre_hooks().empty());
      CHECK(tensor->grad_fn()->post_hooks().empty());
    }
    CHECK(rows(stream, Kind::actv_grad).size() == 10);
  }
}

TEST_CASE_METHOD(
    ObservedRun,
    "a graph whose gradients have not arrived keeps hooks until the next step ends or until off") {
  auto hooks = std::make_unique<HookSet>(activations(), watched(model), stream);
  const at::Tensor trunk = observed_input().requires_grad_() * 2;
  at::Tensor last;
  for (std::int64_t number = 1; number <= 4; ++number) {
    hooks->begin_step({number}, kInCollected);
    const at::Tensor y = observe(model)(trunk);
    hooks->end_step();
    CHECK(y.grad_fn()->pre_hooks().size() == 2);
    CHECK(y.grad_fn()->post_hooks().size() == 1);
    if (last.defined()) {  // the graph of the previous step
      CHECK(last.grad_fn()->pre_hooks().empty());
      CHECK(last.grad_fn()->post_hooks().empty());
    }
    last = y;
  }
  hooks.reset();
  CHECK(last.grad_fn()->pre_hooks().empty());
  CHECK(last.grad_fn()->post_hooks().empty());
}

TEST_CASE_METHOD(ObservedRun, "a gradient that arrives after its step is counted and has no row") {
  auto hooks = std::make_unique<HookSet>(activations(), watched(model), stream);
  hooks->begin_step({1}, kInCollected);
  const at::Tensor late = observe(model)(observed_input()), later = observe(model)(observed_input());
  hooks->end_step();
  hooks->begin_step({2}, kInCollected);
  late.sum().backward();
  hooks->end_step();
  CHECK(rows(stream, Kind::actv_grad).empty());
  CHECK(hooks->not_applicable() == 8);
  hooks.reset();
  later.sum().backward();
  CHECK(model.fc1->weight.grad().defined());
}

TEST_CASE_METHOD(HookedActivations, "several threads may run forwards and backwards of one model") {
  hooks.begin_step({1}, kInCollected);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i) observe(model)(observed_input(3 + t).requires_grad_()).sum().backward();
    });
  }
  for (std::thread& thread : threads) thread.join();
  hooks.end_step();
  CHECK(!hooks.failure());
  CHECK(stream.records.size() == 15 * 20);
}

TEST_CASE("a parameter passed to a module as an input has no activation gradient row") {
  struct Scale : torch::nn::Module {
    at::Tensor forward(const at::Tensor& x, const at::Tensor& w) { return x * w; }
    at::Tensor weight = register_parameter("weight", at::ones({4}));
  } model;
  FakeStream stream;
  HookSet hooks(activations(), watched(model), stream);
  collect(hooks, 1, [&] { observe(model)(observed_input(), model.weight).sum().backward(); });
  CHECK(rows(stream, Kind::actv) == Lines{"model.input_0/0", "model.input_1/0", "model.output/0"});
  CHECK(rows(stream, Kind::actv_grad) == Lines{"model.output/0"});
}

TEST_CASE("a step has at most that many rows of activations and the next one begins anew") {
  HookFuse fuse;
  ActivationRows rows(1e-8, ReuseReadings::no, fuse, 2);
  for (int step = 0; step < 2; ++step) {
    rows.begin_step();
    for (const char* name : {"a", "b", "c"}) rows.add(row(name), at::ones({2}));
    rows.end_step();
    const auto taken = rows.take_rows();
    REQUIRE(taken.size() == 2);
    CHECK(taken[1].name == "b");
  }
  CHECK(!fuse.tripped());
}

TEST_CASE("the gradient of an input is the part through the module and not through a residual") {
  Residual block;
  struct Model : torch::nn::Module {
    std::shared_ptr<Residual> block;
  } model;
  model.block = model.register_module("block", std::shared_ptr<Residual>(&block, [](auto*) {}));
  FakeStream stream;
  HookSet hooks(activations(), watched(model), stream);
  hooks.begin_step({1}, kInCollected);
  const at::Tensor leaf = observed_input().requires_grad_();
  const at::Tensor x = leaf * 3;
  const at::Tensor y = observe(block)(x);
  (y.pow(2).sum() + x.sum()).backward();
  hooks.end_step();
  // Computed by plain torch, with a leaf of its own for each branch.
  const at::Tensor around = x.detach().clone().requires_grad_(), within = x.detach().clone().requires_grad_();
  const at::Tensor out = around + block.body->forward(block.norm->forward(within)).tanh();
  out.pow(2).sum().backward();
  CHECK(near(value(stream, Kind::actv_grad, "block.norm.input", Op::norm), norm_of(within.grad())));
  CHECK(
      near(value(stream, Kind::actv_grad, "block.input", Op::norm), norm_of(around.grad() + within.grad())));
  CHECK(near(value(stream, Kind::actv_grad, "block.input", Op::min),
             (around.grad() + within.grad()).min().item<double>()));
  CHECK(rows(stream, Kind::actv_grad) == Lines{"block.output/0", "block.body.output/0", "block.body.input/0",
                                               "block.norm.output/0", "block.norm.input/0", "block.input/0"});
}

TEST_CASE("an input used several times within its module has the sum as its gradient in each pass") {
  struct Twice : torch::nn::Module {
    at::Tensor forward(const at::Tensor& x) { return (x * 2).sum() + (x.pow(2) + x.sin()).sum(); }
  } model;
  FakeStream stream;
  HookSet hooks(activations(), watched(model), stream);
  hooks.begin_step({1}, kInCollected);
  const at::Tensor leaf = observed_input().requires_grad_();
  for (const bool of_a_node : {false, true}) {
    const at::Tensor x = of_a_node ? leaf * 1 : leaf;
    const at::Tensor y = observe(model)(x);
    torch::autograd::backward({y}, {}, true);
    (y * 3).backward();
  }
  hooks.end_step();
  CHECK(!hooks.failure());
  CHECK(rows(stream, Kind::actv_grad) ==
        Lines{"model.output/0", "model.input/0", "model.output/1", "model.input/1"});
  const at::Tensor x = leaf.detach();
  for (const int forward : {0, 1})
    CHECK(near(value(stream, Kind::actv_grad, "model.input", Op::norm, forward),
               norm_of((2 + 2 * x + x.cos()) * 3)));
}

TEST_CASE_METHOD(HookedActivations,
                 "a backward that does not pass through a module gives its input no gradient row") {
  hooks.begin_step({1}, kInCollected);
  const at::Tensor x = observed_input().requires_grad_() * 2;
  const at::Tensor y = observe(model)(x);
  x.sum().backward();
  hooks.end_step();
  CHECK(rows(stream, Kind::actv_grad).empty());
}

TEST_CASE("an input whose part of the gradient cannot be separated is counted as not applicable") {
  struct Identity : torch::nn::Module {
    at::Tensor forward(const at::Tensor& x) { return x; }
  };
  struct Product : torch::nn::Module {
    at::Tensor forward(const at::Tensor& a, const at::Tensor& b) { return a * b; }
  };
  Identity same;
  Product product;
  torch::nn::Module root;
  root.register_module("same", std::shared_ptr<torch::nn::Module>(&same, [](auto*) {}));
  root.register_module("product", std::shared_ptr<torch::nn::Module>(&product, [](auto*) {}));
  FakeStream stream;
  HookSet hooks(activations(), watched(root), stream);
  hooks.begin_step({1}, kInCollected);
  const at::Tensor x = observed_input().requires_grad_() * 2;
  observe(product)(observe(same)(x), x).sum().backward();
  hooks.end_step();
  CHECK(rows(stream, Kind::actv_grad) == Lines{"product.output/0", "same.output/0"});
  CHECK(hooks.not_applicable() == 3);  // same.input, product.input_0 and _1
}

}  // namespace
}  // namespace gradmon

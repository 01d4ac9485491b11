// SPDX-License-Identifier: Apache-2.0
#include "hooks/observe/forward_tracker.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <sys/mman.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/rnn.h>

#include <new>
#include <set>
#include <thread>

#include "gradmon/observe.h"
#include "tests/hooks/fake_stream.h"
#include "tests/hooks/observed_model.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

using Lines = std::vector<std::string>;

// Writes a line for each call. "> 1 0@2 tuple[1] 0": before the forward of module 1, in micro step 0, its
// call 2 (`r`: recomputed), with one input, the tensor "0". `<`: after the forward; `~`: abandoned;
// `=`: tapped.
class ForwardLog : public ForwardListener {
 public:
  Lines lines;
  bool fails = false;

  void before_forward(const ForwardVisit& visit, const ForwardTensors& inputs) override {
    if (fails) throw std::runtime_error("cannot write");
    write("> ", visit, inputs);
  }
  void after_forward(const ForwardVisit& visit, const ForwardTensors& outputs) override {
    write("< ", visit, outputs);
  }
  void abandoned(const ForwardVisit& visit) override {
    const std::lock_guard lock(mutex_);
    lines.push_back("~ " + std::to_string(visit.module) + " " + place(visit));
  }
  void tapped(const ForwardVisit& within, std::string_view name, const at::Tensor&) override {
    const std::lock_guard lock(mutex_);
    lines.push_back("= " + std::string(name) + " in " +
                    (within.module == kNoModule ? "nothing" : std::to_string(within.module)) + " " +
                    place(within));
  }

 private:
  static std::string place(const ForwardVisit& visit) {
    return std::to_string(visit.micro_step) + "@" + std::to_string(visit.call) +
           (visit.recomputed ? "r" : "");
  }
  void write(const char* direction, const ForwardVisit& visit, const ForwardTensors& tensors) {
    std::string line = direction + std::to_string(visit.module) + " " + place(visit) + " ";
    line += tensors.lone ? "lone" : "tuple[" + std::to_string(tensors.places) + "]";
    for (const auto& element : tensors.elements) line += " " + element.key;
    const std::lock_guard lock(mutex_);
    lines.push_back(line);
  }

  std::mutex mutex_;
};

struct TwoOutputs : torch::nn::Module {
  std::pair<at::Tensor, std::vector<at::Tensor>> forward(const at::Tensor& x, int times,
                                                         const std::optional<at::Tensor>& mask,
                                                         const std::string&) {
    if (times < 0) throw std::runtime_error("not so");
    return {x * times, {x, mask.value_or(x)}};
  }
};

struct Block : torch::nn::Module {
  torch::nn::Linear fc{nullptr};
  std::shared_ptr<TwoOutputs> two;
  Block() {
    fc = register_module("fc", torch::nn::Linear(4, 4));
    two = register_module("two", std::make_shared<TwoOutputs>());
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = observe(*fc)(x);
    tap("middle", y);
    const at::Tensor z = observe(*fc)(y);
    return z + observe(*two)(y, 2, std::nullopt, "text").first;
  }
};

// In the order of named_modules(), with the root first.
std::vector<WatchedModule> modules_of(torch::nn::Module& model) { return watched(model).modules; }

struct Fixture {
  Block model;
  ForwardLog forward_log;
  HookFuse fuse;
  const at::Tensor x = at::linspace(-1, 1, 8).reshape({2, 4});
};

// The block, watched in a step that has begun.
struct WatchedBlock : Fixture {
  ForwardTracker tracker;
  explicit WatchedBlock(int grad_acc_steps = 1)
      : tracker(modules_of(model), grad_acc_steps, {&forward_log}, fuse) {
    tracker.begin_step();
  }
};

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

constexpr int kMostMicroSteps = 1 << 16;

TEST_CASE("a visit has its module and micro step and call and input and output tensors") {
  WatchedBlock f;
  observe(f.model)(f.x);
  const Lines first{"> 0 0@1 tuple[1] 0", "> 1 0@1 tuple[1] 0",     "< 1 0@1 lone ",
                    "= middle in 0 0@1",  "> 1 0@2 tuple[1] 0",     "< 1 0@2 lone ",
                    "> 2 0@1 tuple[4] 0", "< 2 0@1 tuple[3] 0 1 2", "< 0 0@1 lone "};
  CHECK(f.forward_log.lines == first);
  f.forward_log.lines.clear();
  observe(f.model)(f.x);
  REQUIRE(f.forward_log.lines.size() == 9);
  CHECK(f.forward_log.lines[4] == "> 1 1@2 tuple[1] 0");
  f.tracker.begin_step();
  f.forward_log.lines.clear();
  observe(f.model)(f.x);
  CHECK(f.forward_log.lines == first);
}

TEST_CASE("children of an observed Sequential and the module in an AnyModule are visited") {
  torch::nn::Sequential inner(torch::nn::Linear(4, 4), torch::nn::ReLU());
  torch::nn::AnyModule any{torch::nn::Linear(4, 3)};
  torch::nn::Sequential recurrent(torch::nn::LSTM(4, 2));
  torch::nn::Module root;
  root.register_module("inner", inner.ptr());
  root.register_module("any", any.ptr());
  root.register_module("recurrent", recurrent.ptr());
  const at::Tensor x = at::linspace(-1, 1, 8).reshape({2, 4});
  const auto alone = any.forward(inner->forward(x));
  ForwardLog forward_log;
  HookFuse fuse;
  ForwardTracker tracker(modules_of(root), 1, {&forward_log}, fuse);
  tracker.begin_step();
  CHECK(at::equal(observe(any).forward(observe(inner)(x)), alone));  // a holder counts as its module
  using Both = std::tuple<at::Tensor, std::tuple<at::Tensor, at::Tensor>>;
  CHECK(std::get<0>(observe(recurrent).forward<Both>(x.reshape({1, 2, 4}))).defined());
  CHECK(forward_log.lines == Lines{"> 1 0@1 tuple[1] 0", "> 2 0@1 tuple[1] 0", "< 2 0@1 lone ",
                                   "> 3 0@1 tuple[1] 0", "< 3 0@1 lone ", "< 1 0@1 lone ",
                                   "> 4 0@1 tuple[1] 0", "< 4 0@1 lone ", "> 5 0@1 tuple[1] 0",
                                   "> 6 0@1 tuple[1] 0", "< 6 0@1 tuple[3] 0 1 2", "< 5 0@1 tuple[3] 0 1 2"});
}

TEST_CASE("forwards in evaluation mode or without gradients are not visited") {
  WatchedBlock f;
  f.model.eval();
  observe(f.model)(f.x);
  f.model.train();
  {
    const c10::NoGradGuard no_grad;
    observe(f.model)(f.x);
  }
  CHECK(f.forward_log.lines.empty());
  observe(f.model)(f.x);
  CHECK(f.forward_log.lines.at(0) == "> 0 0@1 tuple[1] 0");
}

TEST_CASE("a forward after a recomputation that an exception ended is not part of the recomputation") {
  WatchedBlock f(2);
  const at::Tensor output = observe(f.model)(f.x);
  const auto first = f.forward_log.lines;
  const at::Tensor watched = at::ones({1}).requires_grad_().clone();
  watched.register_hook(
      [&](const at::Tensor&) { forward_entry::entered(&f.model, ModuleMode::training, ForwardTensors{}); });
  watched.backward();
  CHECK(f.forward_log.lines == first);  // not visited: gradients are disabled in the hook
  observe(f.model)(f.x);
  CHECK(f.forward_log.lines.at(first.size()) == "> 0 1@1 tuple[1] 0");
}

TEST_CASE("a forward without gradients inside a visited one is visited because checkpointing does so") {
  WatchedBlock f;
  ForwardPassage root(&f.model, ModuleMode::training, {});
  const c10::NoGradGuard no_grad;
  observe (*f.model.fc)(f.x);
  f.model.fc->eval();
  observe (*f.model.fc)(f.x);
  root.leave({});
  CHECK(f.forward_log.lines ==
        Lines{"> 0 0@1 tuple[0]", "> 1 0@1 tuple[1] 0", "< 1 0@1 lone ", "< 0 0@1 tuple[0]"});
}

TEST_CASE("without an observed root the first module counts micro steps and not beyond grad_acc_steps") {
  WatchedBlock f(2);
  for (int i = 0; i < 3; ++i) {
    observe (*f.model.two)(f.x, 1, f.x, "");
    observe (*f.model.fc)(f.x);
  }
  CHECK(f.forward_log.lines.at(0) == "> 2 0@1 tuple[4] 0 2");
  CHECK(f.forward_log.lines.at(2) == "> 1 0@1 tuple[1] 0");
  CHECK(f.forward_log.lines.at(4) == "> 2 1@1 tuple[4] 0 2");
  CHECK(f.forward_log.lines.at(6) == "> 1 1@1 tuple[1] 0");
  CHECK(f.forward_log.lines.at(8) == "> 2 1@2 tuple[4] 0 2");
}

TEST_CASE("a forward that throws is no longer open and its exception passes through") {
  WatchedBlock f;
  CHECK_THROWS(observe(*f.model.two)(f.x, -1, f.x, ""));
  f.forward_log.lines.clear();
  observe (*f.model.fc)(f.x);
  CHECK(modules_around(module_indices(modules_of(f.model))).empty());
  CHECK(f.forward_log.lines.at(0) == "> 1 0@1 tuple[1] 0");
}

TEST_CASE("entering a root again abandons its earlier forward that is still open") {
  WatchedBlock f;
  forward_entry::entered(&f.model, ModuleMode::training, {});
  const torch::nn::Module* const fc = f.model.fc.get();
  forward_entry::entered(fc, ModuleMode::training, {});
  f.forward_log.lines.clear();
  observe(f.model)(f.x);
  CHECK(f.forward_log.lines.at(0) == "~ 0 0@1");
  CHECK(f.forward_log.lines.at(1) == "> 0 0@1 tuple[1] 0");
  CHECK(modules_around(module_indices(modules_of(f.model))).empty());
}

TEST_CASE("a listener that throws trips the fuse and the forward goes on") {
  Fixture f;
  f.forward_log.fails = true;
  ForwardTracker tracker(modules_of(f.model), 1, {&f.forward_log}, f.fuse);
  tracker.begin_step();
  CHECK(observe(f.model)(f.x).defined());
  REQUIRE(f.fuse.failure());
  CHECK(f.fuse.failure()->cause == "cannot write");
  CHECK(f.forward_log.lines.empty());
  CHECK(modules_around(module_indices(modules_of(f.model))).empty());
}

TEST_CASE("a module registered twice is visited under its first name") {
  Fixture f;
  auto modules = modules_of(f.model);
  modules.push_back({"tied", 0, f.model.fc.get()});
  ForwardTracker tracker(modules, 1, {&f.forward_log}, f.fuse);
  tracker.begin_step();
  observe (*f.model.fc)(f.x);
  CHECK(f.forward_log.lines.at(0) == "> 1 0@1 tuple[1] 0");
}

TEST_CASE("no listener is called before the step begins or after it has ended") {
  Fixture f;
  CHECK(!forward_entry::open());
  {
    ForwardTracker tracker(modules_of(f.model), 1, {&f.forward_log}, f.fuse);
    CHECK(!forward_entry::open());
    tracker.begin_step();
    CHECK(forward_entry::open());
    tracker.disarm();
    CHECK(!forward_entry::open());
    observe(f.model)(f.x);
    CHECK(f.forward_log.lines.empty());
    tracker.begin_step();
  }
  CHECK(!forward_entry::open());
}

// Calls `end` when a forward begins.
class CallbackObserver : public ForwardObserver {
 public:
  std::function<void()> end;
  void entered(const void*, ModuleMode, const ForwardTensors&, GraphCall) noexcept override { end(); }
  void left(const void*, const ForwardTensors&, GraphCall) noexcept override {}
  void called_in_graph(const GraphSite&, GraphCall) noexcept override {}
  GraphCall recomputed_in_graph(const GraphSite&) noexcept override { return kUnknownCall; }
  void gradients_in_graph(GraphCall, GraphSide, const ForwardTensors&) noexcept override {}
  void abandoned(const void*) noexcept override {}
  void tapped(std::string_view, const at::Tensor&) noexcept override {}
  void attended(const void*, std::string_view, const at::Tensor&, const at::Tensor&,
                Causal) noexcept override {}
};

class GraphLog : public ForwardListener {
 public:
  std::vector<ForwardVisit> gradients;  // the visits to which they belong
  void before_forward(const ForwardVisit&, const ForwardTensors&) override {}
  void after_forward(const ForwardVisit&, const ForwardTensors&) override {}
  void gradients_in_graph(const ForwardVisit& visit, GraphSide, const ForwardTensors&) override {
    gradients.push_back(visit);
  }
};

TEST_CASE("gradients within a graph belong to the visit of their call in this step") {
  Fixture f;
  GraphLog log;
  HookFuse fuse;
  ForwardTracker tracker(modules_of(f.model), 1, {&log}, fuse);
  std::vector<GraphCall> calls;
  for (int step = 0; step < 2; ++step) {
    tracker.begin_step();
    for (int i = 0; i < 2; ++i) {
      calls.push_back(forward_entry::call_in_graph({&f.model, 1}));
      forward_entry::entered_in_graph(&f.model, ModuleMode::training, {}, calls.back());
      forward_entry::left_in_graph(&f.model, {}, kUnknownCall);
    }
  }
  CHECK(std::set<GraphCall>(calls.begin(), calls.end()).size() == 4);
  for (const GraphCall call : {calls[3], calls[2], calls[0], kUnknownCall, kEagerCall})
    forward_entry::gradients_in_graph(call, GraphSide::inputs, {});
  REQUIRE(log.gradients.size() == 2);  // calls[0] is of an earlier step
  CHECK(log.gradients[0].in_graph);
  CHECK(log.gradients[0].micro_step == 1);
  CHECK(log.gradients[1].micro_step == 0);
}

TEST_CASE("a tracker destroyed between its lookup and its call touches nothing of its owner") {
  Fixture f;
  const std::size_t size = sizeof(HookFuse);
  void* const page = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(page != MAP_FAILED);
  auto* const fuse = new (page) HookFuse;
  std::optional<ForwardTracker> tracker;
  const auto observer = std::make_shared<CallbackObserver>();
  observer->end = [&] {
    tracker.reset();
    fuse->~HookFuse();
    mprotect(page, size, PROT_NONE);
  };
  forward_entry::arm(observer);
  tracker.emplace(modules_of(f.model), 1, std::vector<ForwardListener*>{&f.forward_log}, *fuse);
  tracker->begin_step();
  forward_entry::entered(&f.model, ModuleMode::training, {});
  forward_entry::disarm(*observer);
  CHECK(!tracker);
  CHECK(f.forward_log.lines.empty());
  munmap(page, size);
}

TEST_CASE("two monitors of one process each see their own model") {
  Fixture f, g;
  ForwardTracker one(modules_of(f.model), 1, {&f.forward_log}, f.fuse);
  ForwardTracker other(modules_of(g.model), 1, {&g.forward_log}, g.fuse);
  one.begin_step();
  other.begin_step();
  observe(f.model)(f.x);
  observe(g.model)(g.x);
  CHECK(f.forward_log.lines.size() == 10);
  CHECK(g.forward_log.lines.size() == 10);
}

TEST_CASE("forwards on several threads survive step boundaries and have distinct micro steps") {
  WatchedBlock f(1'000'000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) observe(f.model)(f.x);
    });
  }
  for (int step = 0; step < 50; ++step) {
    f.tracker.disarm();
    f.tracker.begin_step();
  }
  for (std::thread& thread : threads) thread.join();
  f.tracker.begin_step();
  f.forward_log.lines.clear();
  threads.clear();
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) observe(f.model)(f.x);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::map<std::string, int> roots;
  for (const std::string& line : f.forward_log.lines) {
    if (line.compare(0, 4, "> 0 ") == 0) ++roots[line];
  }
  CHECK(roots.size() == 800);
  CHECK(!f.fuse.failure());
}

TEST_CASE("a forward that threw has no rows and its retry takes over its micro step") {
  ThrowingModel model;
  FakeStream stream;
  HookSet hooks(everything(), watched(model), stream);
  hooks.begin_step({1}, kInCollected);
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
  hooks.begin_step({1}, kInCollected);
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
  hooks.begin_step({1}, kInCollected);
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
  hooks.begin_step({1}, kInCollected);
  train_and_throw(model);
  train(model);
  hooks.end_step();
  CHECK(stream.targets(Kind::attention_hook) == std::vector<std::string>{"1:scores.attention"});
}

TEST_CASE("a step that never ends has a bounded number of micro steps and their calls go on counting") {
  MicroStepCounter counter({{"", 0, nullptr}, {"fc", 0, nullptr}}, 1);
  counter.begin_step();
  MicroStepCounter::Place last;
  for (int i = 0; i < kMostMicroSteps + 5; ++i)
    last = counter.outermost(0, MicroStepCounter::Gradients::disabled);
  CHECK(last.micro_step == kMostMicroSteps - 1);
  CHECK(last.call == 6);
  CHECK(counter.within(1, last.micro_step, MicroStepCounter::Gradients::enabled).call == 1);
  counter.begin_step();
  CHECK(counter.outermost(0, MicroStepCounter::Gradients::enabled).micro_step == 0);
}

}  // namespace
}  // namespace gradmon

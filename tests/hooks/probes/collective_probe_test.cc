// SPDX-License-Identifier: Apache-2.0
#include "hooks/probes/collective_probe.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>

#include <array>

#include "hooks/hook_set.h"
#include "hooks/observe/forward_tracker.h"
#include "tests/hooks/fake_stream.h"
#include "tests/hooks/gloo_ranks.h"
#include "tests/hooks/observed_model.h"
#include "tests/hooks/tiny_model.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

using Names = std::vector<std::string>;

thread_local int this_rank = 0;

std::vector<StackFrame> stack_of_rank() {
  return {{"/job/rank" + std::to_string(this_rank) + ".cc", 7, "main", ""}};
}

HookSettings collective_settings() {
  HookSettings settings;
  settings.collectives.enabled = true;
  settings.collectives.inputs = true;
  return settings;
}

at::Tensor rank_input(int rank) { return at::linspace(-1, 2, 12) * (rank + 1); }

// Makes a call of each kind. Returns the tensors after the calls.
GlooGroup::Tensors run_collectives(GlooGroup& group) {
  this_rank = group.rank();
  const int other = 1 - group.rank();
  at::Tensor reduced = rank_input(group.rank());
  group.all_reduce({reduced})->wait();
  at::Tensor shared = rank_input(group.rank());
  group.broadcast({shared})->wait();
  GlooGroup::Tensors gathered{at::zeros({12}), at::zeros({12})};
  group.all_gather({gathered}, {rank_input(group.rank())})->wait();
  at::Tensor part = at::zeros({12});
  std::vector<GlooGroup::Tensors> parts;
  if (group.rank() == 0) parts = {{rank_input(4), rank_input(5)}};
  group.scatter({part}, parts)->wait();
  at::Tensor passed = rank_input(group.rank() + 2);
  group.rank() == 0 ? group.send({passed}, other)->wait() : group.receive({passed}, other)->wait();
  group.barrier()->wait();
  return {reduced, shared, gathered[0], gathered[1], part, passed};
}

std::vector<GlooGroup::Tensors> run_collectives_on_two_ranks() {
  std::vector<GlooGroup::Tensors> results(2);
  run_ranks(
      2, [&](GlooGroup& group) { results[static_cast<std::size_t>(group.rank())] = run_collectives(group); });
  return results;
}

double row_norm(FakeStream& stream, const std::string& op, int rank, int place = 0) {
  return stream.norm(Kind::other,
                     "0:" + op + "_" + std::to_string(place) + "@rank" + std::to_string(rank) + ".cc[7]");
}

TEST_CASE("each kind of collective call gives rows of its inputs and outputs named after its call site") {
  FakeStream stream;
  std::vector<GlooGroup::Tensors> results;
  {
    HookSet hooks(collective_settings(), {}, stream, stack_of_rank);
    collect(hooks, 3, [&] { results = run_collectives_on_two_ranks(); });
    CHECK_FALSE(hooks.failure());
    CHECK(hooks.not_applicable() == 0);
  }
  for (int rank = 0; rank < 2; ++rank) {
    const GlooGroup::Tensors& tensors = results[static_cast<std::size_t>(rank)];
    INFO("rank " << rank);
    CHECK(near(row_norm(stream, "all_reduce.pre", rank), norm_of(rank_input(rank))));
    CHECK(near(row_norm(stream, "all_reduce.post", rank), norm_of(rank_input(0) * 3)));
    CHECK(near(row_norm(stream, "broadcast.pre", rank), norm_of(rank_input(rank))));
    CHECK(near(row_norm(stream, "broadcast.post", rank), norm_of(tensors[1])));
    CHECK(near(row_norm(stream, "all_gather.pre", rank), norm_of(rank_input(rank))));
    CHECK(near(row_norm(stream, "all_gather.post", rank, 0), norm_of(rank_input(0))));
    CHECK(near(row_norm(stream, "all_gather.post", rank, 1), norm_of(rank_input(1))));
    CHECK(near(row_norm(stream, "scatter.post", rank), norm_of(rank_input(4 + rank))));
  }
  CHECK(near(row_norm(stream, "scatter.pre", 0, 1), norm_of(rank_input(5))));
  CHECK(near(row_norm(stream, "send.pre", 0), norm_of(rank_input(2))));
  CHECK(near(row_norm(stream, "recv.post", 1), norm_of(rank_input(2))));
  CHECK(stream.records.size() == 20);  // the above and rank 0's first input of scatter; barrier has none
}

// Notes the calls' groups, those that functional operators make, and the outputs that torch's operator waits
// for.
struct Notes : CollectiveListener {
  std::mutex mutex;
  std::multiset<const void*> groups;    // guarded by mutex
  std::vector<std::string> functional;  // guarded by mutex
  std::vector<at::Tensor> waited_for;   // guarded by mutex
  std::unique_ptr<CallScope> on_call(CollectiveCall call) override {
    const std::lock_guard lock(mutex);
    groups.insert(call.group_id);
    if (call.functional) functional.push_back(call.op);
    return nullptr;
  }
  void on_coalesced(std::uint64_t, CoalescedWork) override {}
  bool has_unwaited_calls() const override { return false; }
  void on_waited(const c10::ivalue::Future&) override {}
  void on_waited(const at::Tensor& output) override {
    const std::lock_guard lock(mutex);
    waited_for.push_back(output);
  }
  void on_future_taken(const c10::ivalue::Future&) override {}
  void on_failure(std::string_view) noexcept override { CHECK(false); }
};

TEST_CASE("the calls of a process group are known by its address") {
  const auto notes = std::make_shared<Notes>();
  {
    const CollectiveObserver observer(notes);
    run_collectives_on_two_ranks();
  }
  const std::set<const void*> groups(notes->groups.begin(), notes->groups.end());
  CHECK(groups.size() == 2);
  for (const void* group : groups) {
    CHECK(group != nullptr);
    CHECK(notes->groups.count(group) == 6);
  }
}

TEST_CASE("a call is known to be made by a functional operator") {
  const auto notes = std::make_shared<Notes>();
  {
    const CollectiveObserver observer(notes);
    run_ranks(2, [](GlooGroup& group) {
      const at::Tensor tensor = at::zeros({2});
      {
        RECORD_FUNCTION("_c10d_functional::all_reduce_", std::vector<c10::IValue>());
        group.all_reduce({tensor})->wait();
      }
      group.broadcast({tensor})->wait();
    });
  }
  CHECK(notes->functional == Names{"all_reduce", "all_reduce"});
  CHECK(notes->groups.size() == 4);
}

TEST_CASE("torch's operator that waits for a functional call tells its output") {
  const auto operation = c10::Dispatcher::singleton().findSchema({"_c10d_functional::wait_tensor", ""});
  if (!operation) return;  // torch 1.13
  const at::Tensor tensor = at::zeros({2});
  const auto notes = std::make_shared<Notes>();
  {
    const CollectiveObserver observer(notes);
    operation->typed<at::Tensor(const at::Tensor&)>().call(tensor);
  }
  REQUIRE(notes->waited_for.size() == 1);
  CHECK(notes->waited_for[0].is_same(tensor));
}

TEST_CASE("collective calls are observed only during collected steps") {
  REQUIRE_FALSE(at::hasGlobalCallbacks());
  FakeStream stream;
  {
    HookSet hooks(collective_settings(), {}, stream);
    CHECK_FALSE(at::hasGlobalCallbacks());
    collect(hooks, 1, [&] { CHECK(at::hasGlobalCallbacks()); });
    CHECK_FALSE(at::hasGlobalCallbacks());
    hooks.begin_step({2}, Readers{0});
    CHECK_FALSE(at::hasGlobalCallbacks());
    hooks.begin_step({3}, kInCollected);
  }
  CHECK_FALSE(at::hasGlobalCallbacks());
  run_collectives_on_two_ranks();
  CHECK(stream.records.empty());
}

TEST_CASE("destroying one of two observing hook sets leaves the other one observing") {
  FakeStream first, second;
  HookSet stays(collective_settings(), {}, second, stack_of_rank);
  {
    HookSet goes(collective_settings(), {}, first, stack_of_rank);
    goes.begin_step({1}, kInCollected);
    stays.begin_step({1}, kInCollected);
    run_collectives_on_two_ranks();
    goes.end_step();
  }
  run_collectives_on_two_ranks();
  stays.end_step();
  CHECK(first.records.size() == second.records.size());
  const double once = row_norm(first, "all_reduce.post", 0);
  CHECK(near(row_norm(second, "all_reduce.post", 0), once * std::sqrt(2.0)));
}

TEST_CASE("a failing collective call throws at its caller and trips no fuse") {
  FakeStream stream;
  HookSet hooks(collective_settings(), {}, stream, stack_of_rank);
  hooks.begin_step({1}, kInCollected);
  bool thrown = false;
  run_ranks(2, [&](GlooGroup& group) {
    group.barrier()->wait();
    if (group.rank() == 1) return;  // destroys rank 1's process group
    this_rank = 0;
    at::Tensor tensor = rank_input(0);
    try {
      group.all_reduce({tensor})->wait();
    } catch (const std::exception&) {
      thrown = true;
    }
  });
  hooks.end_step();
  CHECK(thrown);
  CHECK_FALSE(hooks.failure());
  CHECK(stream.targets(Kind::other) == Names{"0:all_reduce.pre_0@rank0.cc[7]"});
  CHECK(hooks.not_applicable() == 1);
}

// Sums the output of `layer` over the ranks in place, as tensor parallelism does.
struct TensorParallelLayer : torch::nn::Module {
  torch::nn::Linear layer{nullptr};
  torch::nn::ReLU next{nullptr};
  GlooGroup& group;
  explicit TensorParallelLayer(GlooGroup& ranks) : group(ranks) {
    layer = register_module("layer", torch::nn::Linear(4, 4));
    next = register_module("next", torch::nn::ReLU());
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = observe(*layer)(x);
    group.all_reduce({y.detach()})->wait();
    return observe(*next)(y);
  }
};

TEST_CASE("an activation is read again after a collective call has written to it") {
  FakeStream stream;
  double before = 0, after = 0;
  HookSettings settings;
  settings.activations.forward = settings.activations.all = true;
  run_ranks(2, [&](GlooGroup& group) {
    if (group.rank() == 1) {
      group.all_reduce({at::full({3, 4}, 100.0, at::kFloat)})->wait();
      return;
    }
    TensorParallelLayer model(group);
    const at::Tensor x = at::linspace(-1, 1, 12).reshape({3, 4});
    HookSet hooks(settings, watched(model), stream);
    collect(hooks, 1, [&] { observe(model)(x); });
    REQUIRE_FALSE(hooks.failure());
    const at::Tensor alone = model.layer->forward(x);
    before = norm_of(alone);
    after = norm_of(alone + 100);
  });
  CHECK(near(stream.norm(Kind::actv, "0:layer.output"), before));
  CHECK(near(stream.norm(Kind::actv, "0:next.input"), after));
  CHECK_FALSE(at::hasGlobalCallbacks());
}

TEST_CASE("a native call site is the innermost watched module whose forward runs on the thread") {
  const std::array<char, 3> identities{};
  const std::vector<WatchedModule> modules{
      {"", 0, &identities[0]}, {"layers.0", 1, &identities[1]}, {"layers.0.mlp", 1, &identities[2]}};
  NativeCallSites sites(modules);
  HookFuse fuse;
  ForwardTracker tracker(modules, 1, {&sites}, fuse);
  const auto enter = [&](std::size_t module) {
    forward_entry::entered(&identities[module], ModuleMode::training, {});
  };
  tracker.begin_step();
  CHECK(sites.here().place == "native");
  enter(0);
  CHECK(sites.here().place == "native");
  enter(1);
  enter(2);
  CHECK(sites.here().place == "native[layers.0.mlp]");
  CHECK(sites.here().frames == Names{"native[layers.0.mlp]", "native[layers.0]", "native"});
  CHECK(sites.here().vpp_stage == 1);
  std::thread([&] { CHECK(sites.here().place == "native"); }).join();
  forward_entry::abandoned(&identities[2]);  // its forward threw
  CHECK(sites.here().place == "native[layers.0]");
  forward_entry::left(&identities[1], {});
  CHECK(sites.here().place == "native");
  CHECK(sites.here().vpp_stage == 0);
  forward_entry::left(&identities[0], {});
  CHECK(sites.here().frames.empty());
}

TEST_CASE("each of two monitors names native call sites after modules of its own model") {
  const std::array<char, 3> identities{};
  const std::vector<WatchedModule> outer{{"", 0, &identities[0]}, {"stem", 0, &identities[1]}};
  const std::vector<WatchedModule> inner{{"head", 0, &identities[2]}, {"stem", 1, &identities[1]}};
  NativeCallSites of_outer(outer), of_inner(inner);
  HookFuse fuse;
  ForwardTracker first(outer, 1, {&of_outer}, fuse), second(inner, 1, {&of_inner}, fuse);
  first.begin_step();
  second.begin_step();
  for (const char& identity : identities) forward_entry::entered(&identity, ModuleMode::training, {});
  CHECK(of_outer.here().frames == Names{"native[stem]", "native"});
  CHECK(of_outer.here().vpp_stage == 0);
  CHECK(of_inner.here().frames == Names{"native[head]", "native[stem]"});
  for (const char& identity : identities) forward_entry::abandoned(&identity);
}

}  // namespace
}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "hooks/collectives/collective_probe.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>

#include <array>
#include <atomic>
#include <future>

#include "control/debian_version.h"
#include "hooks/hook_set.h"
#include "hooks/observe/forward_tracker.h"
#include "tests/hooks/fake_stream.h"
#include "tests/hooks/gloo_ranks.h"
#include "tests/hooks/observed_model.h"
#include "tests/hooks/tiny_model.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using Names = std::vector<std::string>;

thread_local int this_rank = 0;

std::vector<StackFrame> site_of_rank() {
  return {{"/job/rank" + std::to_string(this_rank) + ".cc", 7, "main", ""}};
}

HookSettings communication() {
  HookSettings settings;
  settings.collectives.enabled = true;
  settings.collectives.inputs = true;
  return settings;
}

at::Tensor numbers(int rank) { return at::linspace(-1, 2, 12) * (rank + 1); }

// All the calls, and what they leave in the tensors.
Tensors communicate(GlooRank& group) {
  this_rank = group.rank();
  const int other = 1 - group.rank();
  at::Tensor reduced = numbers(group.rank());
  group.all_reduce({reduced})->wait();
  at::Tensor shared = numbers(group.rank());
  group.broadcast({shared})->wait();
  Tensors gathered{at::zeros({12}), at::zeros({12})};
  group.all_gather({gathered}, {numbers(group.rank())})->wait();
  at::Tensor part = at::zeros({12});
  std::vector<Tensors> parts;
  if (group.rank() == 0) parts = {{numbers(4), numbers(5)}};
  group.scatter({part}, parts)->wait();
  at::Tensor passed = numbers(group.rank() + 2);
  group.rank() == 0 ? group.send({passed}, other)->wait() : group.recv({passed}, other)->wait();
  group.barrier()->wait();
  return {reduced, shared, gathered[0], gathered[1], part, passed};
}

std::vector<Tensors> communicate_on_both() {
  std::vector<Tensors> left(2);
  run_ranks(2, [&](GlooRank& group) { left[static_cast<std::size_t>(group.rank())] = communicate(group); });
  return left;
}

double norm_after(FakeStream& stream, const std::string& op, int rank, int place = 0) {
  return stream.norm(Kind::other,
                     "0:" + op + "_" + std::to_string(place) + "@rank" + std::to_string(rank) + ".cc[7]");
}

TEST_CASE("every sort of collective call has its outputs and inputs in rows of its call site") {
  FakeStream stream;
  std::vector<Tensors> left;
  {
    HookSet hooks(communication(), {}, stream, site_of_rank);
    hooks.begin_step({3}, HookSet::Collect::yes);
    left = communicate_on_both();
    hooks.end_step();
    CHECK_FALSE(hooks.failure());
    CHECK(hooks.not_applicable() == 0);
  }
  for (int rank = 0; rank < 2; ++rank) {
    const Tensors& tensors = left[static_cast<std::size_t>(rank)];
    INFO("rank " << rank);
    CHECK(near(norm_after(stream, "all_reduce.pre", rank), norm_of(numbers(rank))));
    CHECK(near(norm_after(stream, "all_reduce.post", rank), norm_of(numbers(0) * 3)));
    CHECK(near(norm_after(stream, "broadcast.pre", rank), norm_of(numbers(rank))));
    CHECK(near(norm_after(stream, "broadcast.post", rank), norm_of(tensors[1])));
    CHECK(near(norm_after(stream, "all_gather.pre", rank), norm_of(numbers(rank))));
    CHECK(near(norm_after(stream, "all_gather.post", rank, 0), norm_of(numbers(0))));
    CHECK(near(norm_after(stream, "all_gather.post", rank, 1), norm_of(numbers(1))));
    CHECK(near(norm_after(stream, "scatter.post", rank), norm_of(numbers(4 + rank))));
  }
  CHECK(near(norm_after(stream, "scatter.pre", 0, 1), norm_of(numbers(5))));
  CHECK(near(norm_after(stream, "send.pre", 0), norm_of(numbers(2))));
  CHECK(near(norm_after(stream, "recv.post", 1), norm_of(numbers(2))));
  CHECK(stream.records.size() == 20);  // these and rank 0's first input of scatter; none of barrier
}

TEST_CASE("communication gives the same bits with it and without") {
  const std::vector<Tensors> without = communicate_on_both();
  FakeStream stream;
  HookSet hooks(communication(), {}, stream, site_of_rank);
  hooks.begin_step({3}, HookSet::Collect::yes);
  const std::vector<Tensors> with = communicate_on_both();
  hooks.end_step();
  CHECK_FALSE(stream.records.empty());
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (std::size_t i = 0; i < with[rank].size(); ++i) CHECK(at::equal(with[rank][i], without[rank][i]));
  }
}

TEST_CASE("torch is observed in collected steps alone and by nobody afterwards") {
  REQUIRE_FALSE(at::hasGlobalCallbacks());
  FakeStream stream;
  {
    HookSet hooks(communication(), {}, stream);
    CHECK_FALSE(at::hasGlobalCallbacks());
    hooks.begin_step({1}, HookSet::Collect::yes);
    CHECK(at::hasGlobalCallbacks());
    hooks.end_step();
    CHECK_FALSE(at::hasGlobalCallbacks());
    hooks.begin_step({2}, HookSet::Collect::no);
    CHECK_FALSE(at::hasGlobalCallbacks());
    hooks.begin_step({3}, HookSet::Collect::yes);
  }
  CHECK_FALSE(at::hasGlobalCallbacks());
  communicate_on_both();
  CHECK(stream.records.empty());
}

TEST_CASE("two sets observe at once and the one that stays goes on") {
  FakeStream first, second;
  HookSet stays(communication(), {}, second, site_of_rank);
  {
    HookSet goes(communication(), {}, first, site_of_rank);
    goes.begin_step({1}, HookSet::Collect::yes);
    stays.begin_step({1}, HookSet::Collect::yes);
    communicate_on_both();
    goes.end_step();
  }
  communicate_on_both();
  stays.end_step();
  CHECK(first.records.size() == second.records.size());
  const double once = norm_after(first, "all_reduce.post", 0);
  CHECK(near(norm_after(second, "all_reduce.post", 0), once * std::sqrt(2.0)));
}

TEST_CASE("work that is under way when its step ends is in no step and its caller gets it all the same") {
  FakeStream stream;
  auto hooks = std::make_unique<HookSet>(communication(), WatchedModel{}, stream, site_of_rank);
  std::promise<void> launched, ended;
  const auto step_ended = ended.get_future().share();
  std::vector<at::Tensor> reduced{numbers(0), numbers(1)};
  hooks->begin_step({1}, HookSet::Collect::yes);
  std::thread ranks([&] {
    run_ranks(2, [&](GlooRank& group) {
      this_rank = group.rank();
      if (group.rank() == 1) step_ended.wait();
      const Work work = group.all_reduce({reduced[static_cast<std::size_t>(group.rank())]});
      if (group.rank() == 0) launched.set_value();
      work->wait();
    });
  });
  launched.get_future().wait();
  hooks->end_step();
  CHECK(stream.targets(Kind::other) == Names{"0:all_reduce.pre_0@rank0.cc[7]"});
  SECTION("the hooks stay") {
    hooks->begin_step({2}, HookSet::Collect::yes);
    ended.set_value();
    ranks.join();
    hooks->end_step();
    CHECK(stream.targets(Kind::other).size() == 3);  // rank 1's call is of this step
    CHECK(std::isnan(norm_after(stream, "all_reduce.post", 0)));
    CHECK(hooks->not_applicable() == 1);
  }
  SECTION("the hooks go") {
    hooks.reset();
    ended.set_value();
    ranks.join();
    CHECK(stream.records.size() == 1);
  }
  for (const at::Tensor& tensor : reduced) CHECK(at::equal(tensor, numbers(0) + numbers(1)));
}

TEST_CASE("a collective call that fails throws at its caller alone") {
  FakeStream stream;
  HookSet hooks(communication(), {}, stream, site_of_rank);
  hooks.begin_step({1}, HookSet::Collect::yes);
  bool thrown = false;
  run_ranks(2, [&](GlooRank& group) {
    group.barrier()->wait();
    if (group.rank() == 1) return;  // and takes its end of the group along
    this_rank = 0;
    at::Tensor tensor = numbers(0);
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

TEST_CASE("where calls are only logged there are no rows") {
  FakeStream stream;
  HookSettings settings = communication();
  settings.collectives.log_only = true;
  HookSet hooks(settings, {}, stream, site_of_rank);
  hooks.begin_step({1}, HookSet::Collect::yes);
  communicate_on_both();
  hooks.end_step();
  CHECK(stream.records.empty());
  CHECK_FALSE(hooks.failure());
}

// Adds up what its layer gives, in place, as a layer split among ranks does.
struct Split : torch::nn::Module {
  torch::nn::Linear layer{nullptr};
  torch::nn::ReLU next{nullptr};
  GlooRank& group;
  explicit Split(GlooRank& ranks) : group(ranks) {
    layer = register_module("layer", torch::nn::Linear(4, 4));
    next = register_module("next", torch::nn::ReLU());
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = observe(*layer)(x);
    group.all_reduce({y.detach()})->wait();
    return observe(*next)(y);
  }
};

TEST_CASE("an activation that communication has written to since it was read is read again") {
  FakeStream stream;
  double before = 0, after = 0;
  HookSettings settings;
  settings.activations.forward = settings.activations.all = true;
  run_ranks(2, [&](GlooRank& group) {
    if (group.rank() == 1) {
      group.all_reduce({at::full({3, 4}, 100.0, at::kFloat)})->wait();
      return;
    }
    Split model(group);
    const at::Tensor x = at::linspace(-1, 1, 12).reshape({3, 4});
    HookSet hooks(settings, watched(model), stream);
    hooks.begin_step({1}, HookSet::Collect::yes);
    observe(model)(x);
    hooks.end_step();
    REQUIRE_FALSE(hooks.failure());
    const at::Tensor alone = model.layer->forward(x);
    before = norm_of(alone);
    after = norm_of(alone + 100);
  });
  CHECK(near(stream.norm(Kind::actv, "0:layer.output"), before));
  CHECK(near(stream.norm(Kind::actv, "0:next.input"), after));
  CHECK_FALSE(at::hasGlobalCallbacks());
}

TEST_CASE("a native call site is the innermost watched module that the thread is in") {
  const std::array<char, 3> identities{};
  const std::vector<WatchedModule> modules{
      {"", 0, &identities[0]}, {"layers.0", 1, &identities[1]}, {"layers.0.mlp", 1, &identities[2]}};
  NativeCallSites sites(modules);
  HookFuse fuse;
  ForwardTracker tap(modules, 1, {&sites}, fuse);
  const auto enter = [&](std::size_t module) {
    forward_entry::entered(&identities[module], ModuleMode::training, {});
  };
  tap.begin_step();
  CHECK(sites.here().place == "native");
  enter(0);
  CHECK(sites.here().place == "native");
  enter(1);
  enter(2);
  CHECK(sites.here().place == "native[layers.0.mlp]");
  CHECK(sites.here().frames == Names{"native[layers.0.mlp]", "native[layers.0]", "native"});
  CHECK(sites.here().vpp_stage == 1);
  std::thread([&] { CHECK(sites.here().place == "native"); }).join();
  forward_entry::abandoned(&identities[2]);  // an exception has left it
  CHECK(sites.here().place == "native[layers.0]");
  forward_entry::left(&identities[1], {});
  CHECK(sites.here().place == "native");
  CHECK(sites.here().vpp_stage == 0);
  forward_entry::left(&identities[0], {});
  CHECK(sites.here().frames.empty());
}

TEST_CASE("with two monitors a native call site is a module of its own model") {
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

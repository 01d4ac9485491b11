// SPDX-License-Identifier: Apache-2.0
#include "hooks/probes/tap_probe.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <cstring>
#include <numeric>

#include "hooks/hook_set.h"
#include "tests/hooks/fake_stream.h"
#include "tests/hooks/tiny_model.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

using Names = std::vector<std::string>;

TappedValue value_of(Kind kind, const std::string& name, double number, int micro_step = 0) {
  return {kind, name, at::full({4}, number), micro_step, ""};
}

HookSettings all_kinds() {
  HookSettings settings;
  settings.gradients = settings.weights = settings.moments = true;
  settings.activations = {true, true, true, {}};
  return settings;
}

// Hands in a value of each kind.
void tap_each_kind(HookSet& hooks) {
  hooks.begin_step({1}, kInCollected);
  for (std::size_t i = 0; i < kKinds && can_be_tapped(static_cast<Kind>(i)); ++i)
    hooks.tap(value_of(static_cast<Kind>(i), "weight", 1));
  hooks.end_step();
}

std::vector<double> counted(std::size_t count) {
  std::vector<double> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0.0);
  return numbers;
}

TEST_CASE("each kind of a tensor's statistics can be handed in, if the plan collects it") {
  const auto kinds = [](const HookSettings& settings) {
    FakeStream stream;
    HookSet hooks(settings, {}, stream);
    tap_each_kind(hooks);
    Names found;
    for (const Record& record : stream.records) found.emplace_back(name_of(record.kind));
    return found;
  };
  CHECK(kinds(all_kinds()) == Names{"actv", "actv_grad", "grad_unreduced", "grad_reduced", "exp_avg",
                                    "exp_avg_sq", "param_origin", "param_updated"});
  HookSettings settings;
  CHECK(kinds(settings).empty());
  settings.gradients = true;
  CHECK(kinds(settings) == Names{"grad_unreduced", "grad_reduced"});
  settings = {};
  settings.moments = true;
  CHECK(kinds(settings) == Names{"exp_avg", "exp_avg_sq"});
  settings = {};
  settings.activations.forward = true;
  CHECK(kinds(settings) == Names{"actv"});
}

TEST_CASE("a value has the scope that the program tells") {
  struct : FakeStream {
    void note_scope(Kind kind, std::uint32_t target, const ScopeText& scope) noexcept override {
      scopes.push_back(std::string(name_of(kind)) + " " + text(target) + " " + *scope);
    }
    Names scopes;
  } stream;
  HookSet hooks(all_kinds(), {}, stream);
  hooks.begin_step({1}, kInCollected);
  TappedValue value = value_of(Kind::grad_reduced, "w", 1);
  hooks.tap(value_of(Kind::param_origin, "w", 1));
  value.scope = make_scope(R"({"scope": "partial"})");
  hooks.tap(value);
  hooks.end_step();
  CHECK(stream.scopes == Names{R"(grad_reduced 0:w {"scope": "partial"})"});
}

TEST_CASE("names that are new in each step do not fill the memory") {
  struct : FakeStream {
    std::uint32_t target_id(int, std::string_view name) override { return name == "w_0" ? 0 : 1; }
  } stream;
  HookSettings settings;
  settings.weights = true;
  HookSet hooks(settings, {}, stream);
  const auto step = [&](const Names& names) {
    stream.records.clear();
    stream.missing.clear();
    collect(hooks, 1, [&] {
      for (const std::string& name : names) hooks.tap(value_of(Kind::param_origin, name, 1));
    });
    return stream.records.size();
  };
  Names many;
  for (std::size_t i = 0; i < TapProbe::kMostNames; ++i) many.push_back("w_" + std::to_string(i));
  CHECK(step(many) == TapProbe::kMostNames);
  CHECK(step({"one more", "w_0", "two more"}) == 1);
  CHECK(stream.records.front().target == 0);
  CHECK(stream.missing.size() == 2);
  CHECK(hooks.not_applicable() == 2);
}

TEST_CASE_METHOD(TinyRun,
                 "rows of values come after the model's, in the order in which they were handed in") {
  HookSettings settings;
  settings.weights = true;
  HookSet hooks(settings, {model.parameters, {}}, stream);
  hooks.begin_step({3}, kInCollected);
  hooks.tap(value_of(Kind::param_origin, "z", 1));
  hooks.tap(value_of(Kind::param_origin, "a", 2));
  hooks.before_update({});
  hooks.end_step();
  CHECK(stream.targets(Kind::param_origin) ==
        Names{"0:fc1.weight", "0:fc1.bias", "0:fc2.weight", "0:fc2.bias", "0:z", "0:a"});
  CHECK(stream.norm(Kind::param_origin, "0:a") == 4);
  for (std::size_t i = 1; i < stream.records.size(); ++i)
    CHECK(stream.records[i - 1].sequence < stream.records[i].sequence);
  CHECK(stream.records.back().step == 3);
}

TEST_CASE("a second value of the same name and micro step replaces the first") {
  FakeStream stream;
  HookSettings settings = all_kinds();
  SECTION("of gradients only the last micro step has a row") {}
  SECTION("with a row for each micro batch every micro step of a gradient has one") {
    settings.per_micro_batch = true;
  }
  HookSet hooks(settings, {}, stream);
  hooks.begin_step({1}, kInCollected);
  for (const int micro_step : {0, 1, 1}) {
    for (const Kind kind : {Kind::actv, Kind::grad_unreduced, Kind::grad_reduced})
      hooks.tap(value_of(kind, "w", 1 + micro_step, micro_step));
  }
  hooks.end_step();
  CHECK(stream.targets(Kind::actv) == Names{"0:w", "0:w"});
  CHECK(stream.targets(Kind::grad_unreduced).size() == (settings.per_micro_batch ? 2 : 1));
  CHECK(stream.norm(Kind::grad_reduced, "0:w") == 4);
}

TEST_CASE("targets select the names of values as those of a model") {
  FakeStream stream;
  HookSettings settings = all_kinds();
  settings.selection.targets = {"decoder.0"};
  HookSet hooks(settings, {}, stream);
  hooks.begin_step({1}, kInCollected);
  for (const char* name : {"decoder.0.weight", "decoder.0", "decoder.01", "encoder"})
    hooks.tap(value_of(Kind::grad_reduced, name, 1));
  hooks.end_step();
  CHECK(stream.targets(Kind::grad_reduced) == Names{"0:decoder.0.weight", "0:decoder.0"});
}

TEST_CASE("a value without a tensor has no row and is counted, an empty one has none") {
  FakeStream stream;
  HookSet hooks(all_kinds(), {}, stream);
  hooks.begin_step({1}, kInCollected);
  hooks.tap({Kind::actv, "x", {}, 0, "format \">f\" has the other byte order"});
  hooks.tap({Kind::actv, "empty", at::full({0}, 1.0), 0, ""});
  hooks.end_step();
  CHECK(stream.records.empty());
  CHECK(hooks.not_applicable() == 1);
  CHECK(!hooks.failure());
}

TEST_CASE("values outside a collected step are not read") {
  FakeStream stream;
  HookSet hooks(all_kinds(), {}, stream);
  hooks.tap(value_of(Kind::actv, "x", 1));
  hooks.begin_step({1}, Readers{0});
  hooks.tap(value_of(Kind::actv, "x", 1));
  hooks.end_step();
  hooks.begin_step({2}, kInCollected);
  hooks.end_step();
  CHECK(stream.records.empty());
}

TEST_CASE("strides that torch has are read in place") {
  auto numbers = counted(24);
  const ForeignArray array{numbers.data() + 1, ElementType::float64, {3, 2, 4}, {48, 0, 8}};
  const auto tensor = tensor_of(array);
  REQUIRE(tensor);
  CHECK(tensor->data_ptr() == numbers.data() + 1);
  CHECK(at::equal(
      *tensor,
      at::arange(24, at::kDouble).view({4, 6}).slice(0, 0, 3).slice(1, 1, 5).unsqueeze(1).expand({3, 2, 4})));
}

TEST_CASE("a negative stride is read in place, in reversed order") {
  auto numbers = counted(6);
  const ForeignArray array{numbers.data() + 5, ElementType::float64, {2, 3}, {-24, -8}};
  const auto tensor = tensor_of(array);
  REQUIRE(tensor);
  CHECK(tensor->data_ptr() == numbers.data());
  CHECK(at::equal(*tensor, at::arange(6, at::kDouble).view({2, 3})));
}

TEST_CASE("elements between others or at odd addresses are copied") {
  std::vector<unsigned char> bytes(1 + 12 * 4);
  for (int i = 0; i < 4; ++i) {
    const double value = i + 0.5;
    std::memcpy(bytes.data() + 1 + 12 * i, &value, sizeof value);
  }
  ForeignArray array{bytes.data() + 1, ElementType::float64, {4}, {12}};
  REQUIRE(tensor_of(array));
  CHECK(at::equal(*tensor_of(array), at::tensor({0.5, 1.5, 2.5, 3.5}, at::kDouble)));
  array = {bytes.data() + 1 + 36, ElementType::float64, {1000, 4}, {0, -12}};
  const auto repeated = tensor_of(array);
  REQUIRE(repeated);
  CHECK(repeated->stride(0) == 0);  // one copy
  CHECK(at::equal(*repeated, at::tensor({0.5, 1.5, 2.5, 3.5}, at::kDouble).expand({1000, 4})));
}

TEST_CASE("an array without elements becomes a tensor without elements") {
  const auto tensor = tensor_of({nullptr, ElementType::float16, {2, 0}, {8, 8}});
  REQUIRE(tensor);
  CHECK(tensor->sizes() == at::IntArrayRef({2, 0}));
  CHECK(tensor->scalar_type() == at::kHalf);
}

}  // namespace
}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include <torch/version.h>

#if TORCH_VERSION_MAJOR >= 2
#include "control/debian_version.h"
#include "tests/hooks/fake_stream.h"
#include "tests/hooks/gradient_hooks_on.h"
#include "tests/hooks/tiny_model.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

HookSettings gradients_only() {
  HookSettings settings;
  settings.gradients = true;
  return settings;
}

// An accumulator keeps the stream that was current when it was made. The program's forward has to make it: on
// its own stream, which may be one that is captured into a CUDA graph.
TEST_CASE("a collected step makes and holds no accumulator before forward does") {
  TinyModel model;
  FakeStream stream;
  HookSet hooks(gradients_only(), {model.parameters, {}}, stream);
  for (const std::int64_t step : {0, 1}) {
    hooks.begin_step({step}, HookSet::Collect::yes);
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
    first.begin_step({0}, HookSet::Collect::yes);
    second.begin_step({0}, HookSet::Collect::yes);
    CHECK(!torch::autograd::impl::try_get_grad_accumulator(model[0]));
    model.backward();
    first.end_step();
    second.end_step();
  }
  CHECK(first_stream.targets(Kind::grad_unreduced).size() == 4);
  CHECK(second_stream.targets(Kind::grad_unreduced).size() == 4);
  second.begin_step({1}, HookSet::Collect::yes);
  CHECK(gradient_hooks_on(model[0]) == 1);
  model.backward();
  second.end_step();
  CHECK(first_stream.targets(Kind::grad_unreduced).size() == 4);
  CHECK(second_stream.targets(Kind::grad_unreduced).size() == 8);
  second.begin_step({2}, HookSet::Collect::no);
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

TEST_CASE("a gradient that a hook in the place of ours may have changed has no row") {
  TinyModel model;
  FakeStream stream;
  HookSet hooks(gradients_only(), {model.parameters, {}}, stream);
  hooks.begin_step({0}, HookSet::Collect::yes);
  torch::autograd::impl::set_post_acc_grad_hooks(model[0], std::make_unique<Divide>());
  model.backward();
  hooks.before_update({model[0], model[1], model[2], model[3]});
  hooks.end_step();
  CHECK(stream.targets(Kind::grad_unreduced).size() == 3);
  CHECK(stream.targets(Kind::grad_reduced).size() == 4);
  CHECK(hooks.not_applicable() == 1);
  hooks.begin_step({1}, HookSet::Collect::no);
  CHECK(gradient_hooks_on(model[0]) == 1);  // the program's own
}

TEST_CASE("a tensor in the place of the parameter's is read in the same step") {
  TinyModel model;
  FakeStream stream;
  HookSet hooks(gradients_only(), {model.parameters, {}}, stream);
  hooks.begin_step({0}, HookSet::Collect::yes);
  torch::autograd::impl::set_post_acc_grad_hooks(model[0], nullptr);  // as a swap leaves it
  model.backward();
  hooks.end_step();
  CHECK(stream.targets(Kind::grad_unreduced).size() == 4);
}

}  // namespace
}  // namespace gradmon
#endif

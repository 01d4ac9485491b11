// SPDX-License-Identifier: Apache-2.0
#include "hooks/gradients/accumulator_hook.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "hooks/observe/compiled_autograd.h"

namespace gradmon {
namespace {

using torch::autograd::variable_list;

class PostHook : public IgnoredByCompiledAutograd<torch::autograd::FunctionPostHook> {
 public:
  explicit PostHook(AccumulatorHook::Body body) : body_(std::move(body)) {}

  variable_list operator()(const variable_list& outputs, const variable_list& inputs) override {
    body_(inputs);
    return outputs;
  }

 private:
  const AccumulatorHook::Body body_;
};

}  // namespace

void AccumulatorHook::attach(NodePointer accumulator, Order order, Body body) {
  detach();
  accumulator_ = std::move(accumulator);
  key_ = accumulator_->add_post_hook(std::make_unique<PostHook>(std::move(body)));
  if (order == Order::last) return;
  auto& hooks = accumulator_->post_hooks();
  std::rotate(hooks.begin(), hooks.end() - 1, hooks.end());
}

void AccumulatorHook::detach() noexcept {
  if (!accumulator_) return;
  accumulator_->del_post_hook(key_);
  accumulator_.reset();
}

}  // namespace gradmon

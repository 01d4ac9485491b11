// SPDX-License-Identifier: Apache-2.0
#include "hooks/tensor_gradient.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "hooks/compiled_autograd.h"

namespace gradmon {

using torch::autograd::Node;
using torch::autograd::variable_list;

class TensorGradients::Hook : public PassedOverWhenCompiled<torch::autograd::FunctionPreHook> {
 public:
  Hook(std::size_t output, Body body) : output_(output), body_(std::move(body)) {}

  variable_list operator()(const variable_list& gradients) override {
    if (output_ < gradients.size() && gradients[output_].defined()) {
      came_.store(true, std::memory_order_relaxed);
      body_(gradients[output_]);
    }
    return gradients;
  }

  bool came() const noexcept { return came_.load(std::memory_order_relaxed); }

 private:
  const std::size_t output_;
  const Body body_;
  std::atomic<bool> came_{false};
};

namespace {

std::unordered_set<const void*> parameters_of(const WatchedModel& model) {
  std::unordered_set<const void*> found;
  for (const WatchedParameter& parameter : model.parameters)
    found.insert(parameter.tensor.unsafeGetTensorImpl());
  return found;
}

}  // namespace

TensorGradients::TensorGradients(const WatchedModel& model) : parameters_(parameters_of(model)) {}

TensorGradients::~TensorGradients() {
  take_off([](const Hooked&, const Hook&) { return true; });
}

GradientSource TensorGradients::source_of(const at::Tensor& tensor) const {
  using Sort = GradientSource::Sort;
  if (!tensor.requires_grad()) return {};
  if (parameters_.count(tensor.unsafeGetTensorImpl()) != 0) return {Sort::parameter, {}, 0, {}};
  const std::shared_ptr<Node> node = tensor.grad_fn();
  if (node) return {Sort::node, node, static_cast<std::size_t>(tensor.output_nr()), {}};
  return {Sort::leaf, {}, 0, c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr())};
}

void TensorGradients::watch(const GradientSource& source, Body body) {
  std::shared_ptr<Node> node = source.node.lock();
  if (source.leaf) {
    const at::Tensor leaf(source.leaf->lock());
    if (leaf.defined()) node = torch::autograd::impl::try_get_grad_accumulator(leaf);
  }
  if (!node) return;
  auto hook = std::make_unique<Hook>(source.output, std::move(body));
  const std::lock_guard lock(mutex_);
  hooked_.push_back({node, hook.get(), source.leaf.has_value(), step_});
  node->add_pre_hook(std::move(hook));
}

void TensorGradients::begin_step() noexcept {
  const std::lock_guard lock(mutex_);
  ++step_;
}

void TensorGradients::end_step() noexcept {
  take_off([this](const Hooked& hooked, const Hook& hook) {
    return hooked.leaf || hooked.step != step_ || hook.came();
  });
}

template <typename Condition>
void TensorGradients::take_off(Condition&& condition) noexcept {
  const std::lock_guard lock(mutex_);
  const auto taken_off = [&](const Hooked& hooked) {
    const auto node = hooked.node.lock();
    if (!node) return true;
    auto& hooks = node->pre_hooks();
    const auto ours =
        std::find_if(hooks.begin(), hooks.end(), [&](const auto& hook) { return hook.get() == hooked.hook; });
    if (ours == hooks.end()) return true;
    if (!condition(hooked, *hooked.hook)) return false;
    hooks.erase(ours);
    return true;
  };
  hooked_.erase(std::remove_if(hooked_.begin(), hooked_.end(), taken_off), hooked_.end());
}

bool requires_gradient(const ForwardTensors& outputs) {
  return c10::GradMode::is_enabled() &&
         std::any_of(outputs.elements.begin(), outputs.elements.end(),
                     [](const auto& element) { return element.tensor.requires_grad(); });
}

}  // namespace gradmon

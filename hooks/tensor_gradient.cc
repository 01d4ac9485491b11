// SPDX-License-Identifier: Apache-2.0
#include "hooks/tensor_gradient.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

namespace gradmon {

using torch::autograd::Node;
using torch::autograd::variable_list;

class TensorGradients::Hook : public torch::autograd::FunctionPreHook {
 public:
  Hook(const TensorGradients* owner, std::size_t output, Body body)
      : owner_(owner), output_(output), body_(std::move(body)) {}

  variable_list operator()(const variable_list& gradients) override {
    if (output_ < gradients.size() && gradients[output_].defined()) body_(gradients[output_]);
    return gradients;
  }

  bool is_of(const TensorGradients* owner) const { return owner_ == owner; }

 private:
  const TensorGradients* const owner_;  // never dereferenced
  const std::size_t output_;
  const Body body_;
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
  const std::lock_guard lock(mutex_);
  node->add_pre_hook(std::make_unique<Hook>(this, source.output, std::move(body)));
  if (source.leaf) leaves_.push_back(node);
}

void TensorGradients::forget_leaves() noexcept {
  const std::lock_guard lock(mutex_);
  for (const auto& leaf : leaves_) {
    const auto node = leaf.lock();
    if (!node) continue;
    auto& hooks = node->pre_hooks();
    hooks.erase(std::remove_if(hooks.begin(), hooks.end(),
                               [this](const auto& hook) {
                                 const auto* const ours = dynamic_cast<const Hook*>(hook.get());
                                 return ours && ours->is_of(this);
                               }),
                hooks.end());
  }
  leaves_.clear();
}

bool requires_gradient(const ForwardTensors& outputs) {
  return c10::GradMode::is_enabled() &&
         std::any_of(outputs.elements.begin(), outputs.elements.end(),
                     [](const auto& element) { return element.tensor.requires_grad(); });
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "hooks/gradients/gradient_attachment.h"

#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "hooks/gradients/accumulator.h"

namespace gradmon {

GradientAttachment::GradientAttachment(const WatchedTensor& parameter, bool needs_inputs, Calls calls,
                                       HookFuse& fuse)
    : parameter_(parameter),
      needs_inputs_(needs_inputs),
      delivered_(std::move(calls.delivered)),
      fuse_(fuse),
      after_accumulation_(std::move(calls.accumulated), [this] { replaced(); }) {}

void GradientAttachment::refresh() {
  const at::Tensor& parameter = *parameter_.tensor;
  may_be_overtaken_ = false;
  if (attach_after_accumulation()) return to_accumulator_.detach();
  if (to_accumulator_.accumulator() && !fits(*to_accumulator_.accumulator(), parameter)) detach();
  if (!parameter.requires_grad()) return;
  // An adapter that passes gradients has its own post-accumulate hook, which runs after this one.
  may_be_overtaken_ = parameter_.gradient_source == UnreducedSource::accumulator &&
                      !has_other_post_accumulate_hooks(parameter);
  const bool wanted = parameter.is_leaf() && parameter.numel() > 0 &&
                      parameter_.gradient_source != UnreducedSource::delivered;
  auto accumulator = wanted ? torch::autograd::impl::grad_accumulator(parameter) : nullptr;
  if (accumulator == to_accumulator_.accumulator()) return;
  detach();
  if (accumulator) attach_to_accumulator(std::move(accumulator));
}

void GradientAttachment::attach_to(const at::Tensor& leaf) {
  auto accumulator = torch::autograd::impl::grad_accumulator(leaf);
  if (accumulator == to_accumulator_.accumulator()) return;
  detach();
  leaf_ = leaf;
  attach_to_accumulator(std::move(accumulator));
}

void GradientAttachment::release() noexcept {
  if (leaf_.defined() || parameter_.tensor->requires_grad()) return detach();
  after_accumulation_.detach(*parameter_.tensor);
}

void GradientAttachment::detach() noexcept {
  after_accumulation_.detach(*parameter_.tensor);
  to_accumulator_.detach();
  leaf_.reset();
}

bool GradientAttachment::overtaken() const {
  return may_be_overtaken_ && has_other_post_accumulate_hooks(*parameter_.tensor);
}

bool GradientAttachment::attach_after_accumulation() {
  const at::Tensor& parameter = *parameter_.tensor;
  if (after_accumulation_.is_on(parameter)) return true;
  if (parameter_.main_gradient || !parameter.requires_grad() || !parameter.is_leaf()) return false;
  if (parameter_.gradient_source != UnreducedSource::accumulator) return false;
  if (has_other_post_accumulate_hooks(parameter))
    return after_accumulation_.attach_before_others(parameter_.hook_first);
  return !needs_inputs_ &&
         after_accumulation_.attach_alone(parameter);  // also if a lazy module's parameter is still empty
}

void GradientAttachment::attach_to_accumulator(NodePointer accumulator) {
  // With a main gradient, run after the hook that adds to it.
  const auto order = parameter_.main_gradient ? AccumulatorHook::Order::last : AccumulatorHook::Order::first;
  to_accumulator_.attach(std::move(accumulator), order, delivered_);
}

// Other code has replaced our hook with its own, or swapped the tensor for another.
void GradientAttachment::replaced() noexcept {
  fuse_.guard(parameter_.name, [&] {
    const at::Tensor& parameter = *parameter_.tensor;
    if (attach_after_accumulation() || !parameter.requires_grad() || !parameter.is_leaf()) return;
    may_be_overtaken_ = true;
    attach_to_accumulator(torch::autograd::impl::grad_accumulator(parameter));
  });
}

}  // namespace gradmon

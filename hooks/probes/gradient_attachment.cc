// SPDX-License-Identifier: Apache-2.0
#include "hooks/probes/gradient_attachment.h"

#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/version.h>

#include <algorithm>
#include <utility>

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 1)
#define GRADMON_POST_ACCUMULATE_HOOKS 1
#else
#define GRADMON_POST_ACCUMULATE_HOOKS 0
#endif

namespace gradmon {
namespace {

using torch::autograd::variable_list;

class PostHook : public IgnoredByCompiledAutograd<torch::autograd::FunctionPostHook> {
 public:
  explicit PostHook(GradientListener& listener) : listener_(listener) {}

  variable_list operator()(const variable_list& outputs, const variable_list& inputs) override {
    listener_.delivered(inputs);
    return outputs;
  }

 private:
  GradientListener& listener_;
};

}  // namespace

bool fits(const torch::autograd::Node& accumulator, const at::Tensor& parameter) {
  return accumulator.input_metadata(0).is_same_shape(parameter);
}

bool reaches(const at::Tensor& leaf) {
  const auto* nodes = torch::autograd::get_current_graph_task_nodes_in_graph();
  if (nodes == nullptr) return false;
  // Makes an accumulator if the leaf has none: try_get_grad_accumulator() does not lock the field, which a
  // forward on another thread sets.
  const auto accumulator = torch::autograd::impl::grad_accumulator(leaf);
  return accumulator && nodes->count(accumulator.get()) > 0;
}

void AccumulatorHook::attach(NodePointer accumulator, Order order, GradientListener& listener) {
  detach();
  accumulator_ = std::move(accumulator);
  key_ = accumulator_->add_post_hook(std::make_unique<PostHook>(listener));
  if (order == Order::last) return;
  auto& hooks = accumulator_->post_hooks();
  std::rotate(hooks.begin(), hooks.end() - 1, hooks.end());
}

void AccumulatorHook::detach() noexcept {
  if (!accumulator_) return;
  accumulator_->del_post_hook(key_);
  accumulator_.reset();
}

#if GRADMON_POST_ACCUMULATE_HOOKS

using torch::autograd::PostAccumulateGradHook;

// One for all of gradmon's hooks on the parameter: one monitor may have several hooks, and several monitors
// may exist.
class OwnPostAccumulateHook : public IgnoredByCompiledAutograd<PostAccumulateGradHook> {
 public:
  ~OwnPostAccumulateHook() override {
    for (PostAccumulateHook* const one : all_) one->on_ = nullptr;
    for (PostAccumulateHook* const one : all_) one->owner_.replaced();
  }

  void operator()(const at::Tensor&) override {
    for (const PostAccumulateHook* const one : all_) one->listener_.accumulated();
  }
  void apply_with_saved(at::Tensor&, torch::dynamo::autograd::SwapSavedVariables&) override {}

  void add(PostAccumulateHook* one) {
    one->on_ = this;
    all_.push_back(one);
  }
  void remove(PostAccumulateHook* one) {
    one->on_ = nullptr;
    all_.erase(std::remove(all_.begin(), all_.end(), one), all_.end());
  }
  bool empty() const { return all_.empty(); }

 private:
  c10::SmallVector<PostAccumulateHook*, 2> all_;
};

namespace {

// Null if the tensor cannot have such hooks.
std::unique_ptr<PostAccumulateGradHook>* place_in(const at::Tensor& parameter) {
  namespace impl = torch::autograd::impl;
  if (!parameter.defined() || impl::get_autograd_meta(parameter) == nullptr) return nullptr;
  return &impl::post_acc_grad_hooks(parameter);
}

OwnPostAccumulateHook* own_hook_of(const at::Tensor& parameter) {
  const auto* place = place_in(parameter);
  return place == nullptr ? nullptr : dynamic_cast<OwnPostAccumulateHook*>(place->get());
}

// True if other code has post-accumulate hooks on the parameter (torch >= 2.1), which run ahead of the
// accumulator's post-hooks. True also after the last one was removed.
bool has_other_post_accumulate_hooks(const at::Tensor& parameter) {
  const auto* place = place_in(parameter);
  return place != nullptr && *place && own_hook_of(parameter) == nullptr;
}

}  // namespace

#else

class OwnPostAccumulateHook {};

static bool has_other_post_accumulate_hooks(const at::Tensor&) { return false; }

#endif

// Not in the header: there OwnPostAccumulateHook, which spare_ may hold, is incomplete.
PostAccumulateHook::PostAccumulateHook(GradientListener& listener, GradientAttachment& owner)
    : listener_(listener), owner_(owner) {}

PostAccumulateHook::~PostAccumulateHook() { leave(); }

bool PostAccumulateHook::attach_before_others(const HookFirst& hook_first) {
  if (!hook_first) return false;
  auto take_off = hook_first([&listener = listener_] { listener.accumulated(); });
  if (!take_off) return false;
  leave();
  take_off_ = std::move(take_off);
  return true;
}

#if GRADMON_POST_ACCUMULATE_HOOKS

bool PostAccumulateHook::attach_alone(const at::Tensor& parameter) {
  auto* const place = place_in(parameter);
  if (place == nullptr || has_other_post_accumulate_hooks(parameter)) return false;
  leave();
  if (!*place) *place = spare_ ? std::move(spare_) : std::make_unique<OwnPostAccumulateHook>();
  static_cast<OwnPostAccumulateHook*>(place->get())->add(this);
  return true;
}

void PostAccumulateHook::detach(const at::Tensor& parameter) noexcept {
  OwnPostAccumulateHook* const own = on_;
  leave();
  if (own == nullptr || !own->empty()) return;
  auto* const place = place_in(parameter);
  if (place == nullptr || place->get() != own) return;
  place->release();
  spare_.reset(own);
}

bool PostAccumulateHook::is_on(const at::Tensor& parameter) const {
  if (take_off_) return true;
  const auto* place = on_ == nullptr ? nullptr : place_in(parameter);
  return place != nullptr && place->get() == on_;
}

void PostAccumulateHook::leave() noexcept {
  if (take_off_) std::exchange(take_off_, nullptr)();
  if (on_ != nullptr) on_->remove(this);
}

#else

bool PostAccumulateHook::attach_alone(const at::Tensor&) { return false; }
void PostAccumulateHook::detach(const at::Tensor&) noexcept { leave(); }
bool PostAccumulateHook::is_on(const at::Tensor&) const { return static_cast<bool>(take_off_); }

void PostAccumulateHook::leave() noexcept {
  if (take_off_) std::exchange(take_off_, nullptr)();
}

#endif

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
  to_accumulator_.attach(std::move(accumulator), order, listener_);
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

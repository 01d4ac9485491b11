// SPDX-License-Identifier: Apache-2.0
#include "hooks/gradients/post_accumulate_hook.h"

#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/version.h>

#include <algorithm>
#include <utility>

#include "hooks/observe/compiled_autograd.h"

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 1)
#define GRADMON_POST_ACCUMULATE_HOOKS 1
#else
#define GRADMON_POST_ACCUMULATE_HOOKS 0
#endif

namespace gradmon {

#if GRADMON_POST_ACCUMULATE_HOOKS

using torch::autograd::PostAccumulateGradHook;

// One for all of gradmon's hooks on the parameter: one monitor may have several hooks, and several monitors
// may exist.
class OwnPostAccumulateHook : public IgnoredByCompiledAutograd<PostAccumulateGradHook> {
 public:
  ~OwnPostAccumulateHook() override {
    for (PostAccumulateHook* const one : all_) one->on_ = nullptr;
    for (PostAccumulateHook* const one : all_) one->lost_();
  }

  void operator()(const at::Tensor&) override {
    for (const PostAccumulateHook* const one : all_) one->body_();
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

}  // namespace

#else

class OwnPostAccumulateHook {};

#endif

PostAccumulateHook::PostAccumulateHook(Body body, std::function<void()> lost)
    : body_(std::move(body)), lost_(std::move(lost)) {}

PostAccumulateHook::~PostAccumulateHook() { leave(); }

bool PostAccumulateHook::attach_before_others(const HookFirst& hook_first) {
  if (!hook_first) return false;
  auto take_off = hook_first(body_);
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

bool has_other_post_accumulate_hooks(const at::Tensor& parameter) {
  const auto* place = place_in(parameter);
  return place != nullptr && *place && own_hook_of(parameter) == nullptr;
}

void PostAccumulateHook::leave() noexcept {
  if (take_off_) std::exchange(take_off_, nullptr)();
  if (on_ != nullptr) on_->remove(this);
}

#else

bool PostAccumulateHook::attach_alone(const at::Tensor&) { return false; }
void PostAccumulateHook::detach(const at::Tensor&) noexcept { leave(); }
bool PostAccumulateHook::is_on(const at::Tensor&) const { return static_cast<bool>(take_off_); }
bool has_other_post_accumulate_hooks(const at::Tensor&) { return false; }

void PostAccumulateHook::leave() noexcept {
  if (take_off_) std::exchange(take_off_, nullptr)();
}

#endif

}  // namespace gradmon

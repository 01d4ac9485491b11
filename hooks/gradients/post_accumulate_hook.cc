// SPDX-License-Identifier: Apache-2.0
#include "hooks/gradients/post_accumulate_hook.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/version.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "hooks/observe/compiled_autograd.h"

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 1)
#define GRADMON_POST_ACCUMULATE_HOOKS 1
#else
#define GRADMON_POST_ACCUMULATE_HOOKS 0
#endif

namespace gradmon {

#if GRADMON_POST_ACCUMULATE_HOOKS

using torch::autograd::PostAccumulateGradHook;

// One for all of gradmon's hooks on the parameter: a monitor may have several, and there may be several
// monitors.
class OwnPostAccumulateHook : public IgnoredByCompiledAutograd<PostAccumulateGradHook> {
 public:
  using Attached = std::shared_ptr<PostAccumulateHook::Attached>;

  ~OwnPostAccumulateHook() override {
    for (const Attached& one : all_) {
      one->hook = nullptr;
      if (const auto lost = std::exchange(one->lost, nullptr)) lost();
    }
  }

  void operator()(const at::Tensor&) override {
    for (const Attached& one : all_) {
      if (one->body) one->body();
    }
  }
  void apply_with_saved(at::Tensor&, torch::dynamo::autograd::SwapSavedVariables&) override {}

  void add(const Attached& one) {
    one->hook = this;
    all_.push_back(one);
  }
  void remove(const Attached& one) { all_.erase(std::remove(all_.begin(), all_.end(), one), all_.end()); }
  bool empty() const { return all_.empty(); }

 private:
  std::vector<Attached> all_;
};

namespace {

// Null if the tensor cannot have any.
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

#endif

bool PostAccumulateHook::attach_before_others(const HookFirst& hook_first, Body body) {
  if (!hook_first) return false;
  auto take_off = hook_first(std::move(body));
  if (!take_off) return false;
  leave();
  take_off_ = std::move(take_off);
  return true;
}

#if GRADMON_POST_ACCUMULATE_HOOKS

bool PostAccumulateHook::attach_alone(const at::Tensor& parameter, Body body, std::function<void()> lost) {
  auto* const place = place_in(parameter);
  if (place == nullptr || has_other_post_accumulate_hooks(parameter)) return false;
  leave();
  attached_ = std::make_shared<Attached>(Attached{std::move(body), std::move(lost), nullptr});
  if (!*place) *place = std::make_unique<OwnPostAccumulateHook>();
  own_hook_of(parameter)->add(attached_);
  return true;
}

void PostAccumulateHook::detach(const at::Tensor& parameter) noexcept {
  if (OwnPostAccumulateHook* const own = attached_ ? own_hook_of(parameter) : nullptr) {
    own->remove(attached_);
    if (own->empty()) place_in(parameter)->reset();
  }
  leave();
}

bool PostAccumulateHook::is_on(const at::Tensor& parameter) const {
  if (take_off_) return true;
  if (!attached_ || attached_->hook == nullptr) return false;
  const auto* place = place_in(parameter);
  return place != nullptr && place->get() == attached_->hook;
}

bool has_other_post_accumulate_hooks(const at::Tensor& parameter) {
  const auto* place = place_in(parameter);
  return place != nullptr && *place && own_hook_of(parameter) == nullptr;
}

#else

bool PostAccumulateHook::attach_alone(const at::Tensor&, Body, std::function<void()>) { return false; }
void PostAccumulateHook::detach(const at::Tensor&) noexcept { leave(); }
bool PostAccumulateHook::is_on(const at::Tensor&) const { return static_cast<bool>(take_off_); }
bool has_other_post_accumulate_hooks(const at::Tensor&) { return false; }

#endif

void PostAccumulateHook::leave() noexcept {
  if (take_off_) std::exchange(take_off_, nullptr)();
  if (attached_) *attached_ = {};
  attached_.reset();
}

}  // namespace gradmon

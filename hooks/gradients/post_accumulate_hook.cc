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
namespace {

#if GRADMON_POST_ACCUMULATE_HOOKS

using torch::autograd::PostAccumulateGradHook;

// One for all of gradmon's hooks on the parameter: a monitor may have several, and there may be several
// monitors.
class OwnHook : public IgnoredByCompiledAutograd<PostAccumulateGradHook> {
 public:
  using SharedBody = std::shared_ptr<PostAccumulateHook::Body>;

  void operator()(const at::Tensor&) override {
    for (const SharedBody& body : bodies_) {
      if (*body) (*body)();
    }
  }
  void apply_with_saved(at::Tensor&, torch::dynamo::autograd::SwapSavedVariables&) override {}

  void add(SharedBody body) { bodies_.push_back(std::move(body)); }
  bool has(const SharedBody& body) const {
    return std::find(bodies_.begin(), bodies_.end(), body) != bodies_.end();
  }
  void remove(const SharedBody& body) {
    bodies_.erase(std::remove(bodies_.begin(), bodies_.end(), body), bodies_.end());
  }
  bool empty() const { return bodies_.empty(); }

 private:
  std::vector<SharedBody> bodies_;
};

// Null if the tensor cannot have any.
std::unique_ptr<PostAccumulateGradHook>* place_in(const at::Tensor& parameter) {
  namespace impl = torch::autograd::impl;
  if (!parameter.defined() || impl::get_autograd_meta(parameter) == nullptr) return nullptr;
  return &impl::post_acc_grad_hooks(parameter);
}

OwnHook* own_hook_of(const at::Tensor& parameter) {
  const auto* place = place_in(parameter);
  return place == nullptr ? nullptr : dynamic_cast<OwnHook*>(place->get());
}

#endif

}  // namespace

bool PostAccumulateHook::attach_before_others(const HookFirst& hook_first, Body body) {
  if (!hook_first) return false;
  auto take_off = hook_first(std::move(body));
  if (!take_off) return false;
  leave();
  take_off_ = std::move(take_off);
  return true;
}

#if GRADMON_POST_ACCUMULATE_HOOKS

bool PostAccumulateHook::attach_alone(const at::Tensor& parameter, Body body) {
  auto* const place = place_in(parameter);
  if (place == nullptr || has_other_post_accumulate_hooks(parameter)) return false;
  leave();
  body_ = std::make_shared<Body>(std::move(body));
  if (!*place) *place = std::make_unique<OwnHook>();
  own_hook_of(parameter)->add(body_);
  return true;
}

void PostAccumulateHook::detach(const at::Tensor& parameter) noexcept {
  if (OwnHook* const own = body_ ? own_hook_of(parameter) : nullptr) {
    own->remove(body_);
    if (own->empty()) place_in(parameter)->reset();
  }
  leave();
}

bool PostAccumulateHook::is_on(const at::Tensor& parameter) const {
  if (take_off_) return true;
  const OwnHook* const own = body_ ? own_hook_of(parameter) : nullptr;
  return own != nullptr && own->has(body_);
}

bool has_other_post_accumulate_hooks(const at::Tensor& parameter) {
  const auto* place = place_in(parameter);
  return place != nullptr && *place && own_hook_of(parameter) == nullptr;
}

#else

bool PostAccumulateHook::attach_alone(const at::Tensor&, Body) { return false; }
void PostAccumulateHook::detach(const at::Tensor&) noexcept { leave(); }
bool PostAccumulateHook::is_on(const at::Tensor&) const { return static_cast<bool>(take_off_); }
bool has_other_post_accumulate_hooks(const at::Tensor&) { return false; }

#endif

bool PostAccumulateHook::was_replaced(const at::Tensor& parameter) {
  if (!body_ || is_on(parameter)) return false;
  leave();
  return has_other_post_accumulate_hooks(parameter);
}

void PostAccumulateHook::leave() noexcept {
  if (take_off_) std::exchange(take_off_, nullptr)();
  if (body_) *body_ = nullptr;
  body_.reset();
}

}  // namespace gradmon

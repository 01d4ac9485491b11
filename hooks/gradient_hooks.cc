// SPDX-License-Identifier: Apache-2.0
#include "hooks/gradient_hooks.h"

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

namespace gradmon {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

class DeliveryHook : public torch::autograd::FunctionPostHook {
 public:
  explicit DeliveryHook(std::function<void()> delivered) : delivered_(std::move(delivered)) {}

  variable_list operator()(const variable_list& outputs, const variable_list&) override {
    delivered_();
    return outputs;
  }

 private:
  std::function<void()> delivered_;
};

// Which gradient a parameter holds, and how often it was written. Owns nothing
// that keeps the gradient's memory.
struct GradientMark {
  c10::weak_intrusive_ptr<c10::TensorImpl> identity;
  std::uint32_t version;

  static std::optional<GradientMark> of(const at::Tensor& parameter) {
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined()) return std::nullopt;
    const auto version = gradient.is_inference() ? 0U : static_cast<std::uint32_t>(gradient._version());
    return GradientMark{c10::weak_intrusive_ptr<c10::TensorImpl>(gradient.getIntrusivePtr()), version};
  }

  bool operator==(const GradientMark& other) const {
    return identity == other.identity && version == other.version;
  }
};

}  // namespace

class GradientHooks::Slot {
 public:
  Slot(const Watched& watched, GradientHooks& hooks) : watched_(watched), hooks_(hooks) {}
  ~Slot() { detach(); }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  void refresh() {
    const bool wanted = watched_.tensor.requires_grad() && watched_.tensor.is_leaf();
    auto accumulator = wanted ? torch::autograd::impl::grad_accumulator(watched_.tensor) : nullptr;
    if (accumulator == accumulator_) return;
    detach();
    if (accumulator) attach(std::move(accumulator));
  }

  void begin_step() {
    reading_.present = false;
    arrival_ = 0;
    before_ = GradientMark::of(watched_.tensor);
  }

  bool touched() const {
    const auto now = GradientMark::of(watched_.tensor);
    return now && !(before_ && *before_ == *now);
  }

  bool attached() const { return accumulator_ != nullptr; }
  std::uint64_t arrival() const { return arrival_; }  // from 1; 0: has not fired
  const Reading& reading() const { return reading_; }

 private:
  void attach(std::shared_ptr<Node> accumulator) {
    accumulator_ = std::move(accumulator);
    key_ = accumulator_->add_post_hook(std::make_unique<DeliveryHook>([this] { delivered(); }));
    auto& hooks = accumulator_->post_hooks();
    std::rotate(hooks.begin(), hooks.end() - 1, hooks.end());
  }

  void detach() noexcept {
    if (!accumulator_) return;
    accumulator_->del_post_hook(key_);
    accumulator_.reset();
  }

  void delivered() noexcept {
    if (!hooks_.armed_.load(std::memory_order_acquire) || hooks_.fuse_.tripped()) return;
    if (arrival_ == 0) arrival_ = hooks_.arrivals_.fetch_add(1, std::memory_order_relaxed) + 1;
    const at::Tensor& gradient = watched_.tensor.grad();
    if (gradient.defined()) reading_.take(gradient, hooks_.eps_, watched_.name, hooks_.fuse_);
  }

  const Watched& watched_;
  GradientHooks& hooks_;
  std::shared_ptr<Node> accumulator_;
  std::uintptr_t key_ = 0;
  std::uint64_t arrival_ = 0;
  std::optional<GradientMark> before_;
  Reading reading_;
};

GradientHooks::GradientHooks(const std::vector<Watched>& watched, double eps, HookFuse& fuse)
    : watched_(watched), fuse_(fuse), eps_(eps) {
  for (const Watched& parameter : watched_) slots_.push_back(std::make_unique<Slot>(parameter, *this));
  refresh();
}

GradientHooks::~GradientHooks() = default;

void GradientHooks::refresh() {
  for (const auto& slot : slots_) slot->refresh();
}

void GradientHooks::begin_step() {
  refresh();
  for (const auto& slot : slots_) slot->begin_step();
  arrivals_.store(0, std::memory_order_relaxed);
  armed_.store(true, std::memory_order_release);
}

bool GradientHooks::fired(std::size_t parameter) const { return slots_[parameter]->arrival() != 0; }
bool GradientHooks::touched(std::size_t parameter) const { return slots_[parameter]->touched(); }
const Reading& GradientHooks::reading(std::size_t parameter) const { return slots_[parameter]->reading(); }

std::vector<std::size_t> GradientHooks::arrivals() const {
  std::vector<std::pair<std::uint64_t, std::size_t>> fired;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i]->arrival() != 0) fired.emplace_back(slots_[i]->arrival(), i);
  }
  std::sort(fired.begin(), fired.end());
  std::vector<std::size_t> order;
  for (const auto& [arrival, parameter] : fired) order.push_back(parameter);
  return order;
}

std::size_t GradientHooks::attached() const noexcept {
  return static_cast<std::size_t>(
      std::count_if(slots_.begin(), slots_.end(), [](const auto& slot) { return slot->attached(); }));
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "hooks/observe/tensor_gradient.h"

#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <string>
#include <utility>

#include "control/log.h"
#include "hooks/observe/compiled_autograd.h"

namespace gradmon {

using torch::autograd::Node;
using torch::autograd::variable_list;

// Watches one of the gradients that a node receives or returns.
class Arrival {
 public:
  Arrival(std::size_t number, TensorGradients::Body body) : number_(number), body_(std::move(body)) {}

  bool arrived() const noexcept { return arrived_.load(std::memory_order_relaxed); }

 protected:
  void look(const variable_list& gradients) {
    if (number_ >= gradients.size() || !gradients[number_].defined()) return;
    arrived_.store(true, std::memory_order_relaxed);
    body_(gradients[number_]);
  }

 private:
  const std::size_t number_;
  const TensorGradients::Body body_;
  std::atomic<bool> arrived_{false};
};

class TensorGradients::Before : public PassedOverWhenCompiled<torch::autograd::FunctionPreHook>, public Arrival {
 public:
  using Arrival::Arrival;
  variable_list operator()(const variable_list& gradients) override {
    look(gradients);
    return gradients;
  }
};

class TensorGradients::After : public PassedOverWhenCompiled<torch::autograd::FunctionPostHook>, public Arrival {
 public:
  using Arrival::Arrival;
  variable_list operator()(const variable_list& given, const variable_list&) override {
    look(given);
    return given;
  }
};

// Adds the gradients that arrive by several edges in one pass. Holds the tensors until all have arrived.
class TensorGradients::Sum {
 public:
  Sum(std::size_t edges, Body body) : body_(std::move(body)), parts_(edges) {}

  void add(std::size_t edge, const at::Tensor& gradient) noexcept {
    take([&] {
      if (parts_[edge].defined()) clear_parts();  // a new pass has begun
      parts_[edge] = gradient.detach();
      const auto is_here = [](const at::Tensor& part) { return part.defined(); };
      return std::all_of(parts_.begin(), parts_.end(), is_here);
    });
  }

  // No more gradients arrive in this pass.
  void end_pass() noexcept {
    take([] { return true; });
  }

  void clear() noexcept {
    const std::lock_guard lock(mutex_);
    clear_parts();
  }

 private:
  void clear_parts() noexcept { std::fill(parts_.begin(), parts_.end(), at::Tensor()); }

  template <typename Complete>
  void take(Complete&& complete) noexcept {
    try {
      std::vector<at::Tensor> taken;
      {
        const std::lock_guard lock(mutex_);
        if (!complete()) return;
        taken = std::exchange(parts_, std::vector<at::Tensor>(parts_.size()));
      }
      if (const at::Tensor all = sum_of(taken); all.defined()) body_(all);
    } catch (const std::exception& error) {
      log_warn(std::string("actv_grad: gradients that cannot be added: ") + error.what());
    }
  }

  static at::Tensor sum_of(const std::vector<at::Tensor>& parts) {
    const c10::NoGradGuard no_grad;
    at::Tensor sum;
    for (const at::Tensor& part : parts) {
      if (!part.defined()) continue;
      // torch adds a sparse tensor to a dense one, but not a dense tensor to a sparse one.
      if (!sum.defined() || (sum.layout() != at::kStrided && part.layout() == at::kStrided)) {
        sum = sum.defined() ? part + sum : part;
      } else {
        sum = sum + part;
      }
    }
    return sum;
  }

  const Body body_;
  std::mutex mutex_;
  std::vector<at::Tensor> parts_;  // guarded by mutex_
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
  take_off([](const Hooked&, bool) { return true; });
}

GradientSource TensorGradients::source_of(const at::Tensor& tensor) const {
  const bool parameter = tensor.requires_grad() && parameters_.count(tensor.unsafeGetTensorImpl()) != 0;
  return parameter ? GradientSource{GradientSource::Sort::parameter, {}, 0, {}} : GradientSource::of(tensor);
}

void TensorGradients::watch(const GradientSource& source, Body body) {
  const std::shared_ptr<Node> node = source.find();
  if (node) put_before(node, std::make_unique<Before>(source.output, std::move(body)), source.leaf.has_value());
}

void TensorGradients::watch_edges(const GradientSource& into, std::vector<InnerEdge> edges, Body body) {
  if (edges.empty()) return;
  if (edges.size() == 1)
    return put_after(edges[0].from, std::make_unique<After>(edges[0].number, std::move(body)));
  const auto sum = std::make_shared<Sum>(edges.size(), std::move(body));
  for (std::size_t i = 0; i < edges.size(); ++i) {
    const auto add = [sum, i](const at::Tensor& gradient) { sum->add(i, gradient); };
    put_after(edges[i].from, std::make_unique<After>(edges[i].number, add));
  }
  watch(into, [sum](const at::Tensor&) { sum->end_pass(); });
  const std::lock_guard lock(mutex_);
  sums_.push_back(sum);
}

void TensorGradients::put_before(const std::shared_ptr<Node>& node, std::unique_ptr<Before> hook, bool leaf) {
  const std::lock_guard lock(mutex_);
  hooked_.push_back({node, hook.get(), nullptr, leaf, step_});
  node->add_pre_hook(std::move(hook));
}

void TensorGradients::put_after(const std::shared_ptr<Node>& node, std::unique_ptr<After> hook) {
  const std::lock_guard lock(mutex_);
  hooked_.push_back({node, nullptr, hook.get(), false, step_});
  node->add_post_hook(std::move(hook));
}

void TensorGradients::begin_step() noexcept {
  const std::lock_guard lock(mutex_);
  ++step_;
}

void TensorGradients::end_step() noexcept {
  take_off(
      [this](const Hooked& hooked, bool arrived) { return hooked.leaf || hooked.step != step_ || arrived; });
  const std::lock_guard lock(mutex_);
  for (const std::weak_ptr<Sum>& sum : std::exchange(sums_, {})) {
    if (const auto alive = sum.lock()) alive->clear();
  }
}

template <typename Condition>
void TensorGradients::take_off(Condition&& condition) noexcept {
  const std::lock_guard lock(mutex_);
  const auto taken_off = [&](const Hooked& hooked) {
    const auto node = hooked.node.lock();
    if (!node) return true;
    const auto take_from = [&](auto& hooks, const auto* own) {
      const auto ours =
          std::find_if(hooks.begin(), hooks.end(), [&](const auto& hook) { return hook.get() == own; });
      if (ours == hooks.end()) return true;
      if (!condition(hooked, own->arrived())) return false;
      hooks.erase(ours);
      return true;
    };
    return hooked.before != nullptr ? take_from(node->pre_hooks(), hooked.before)
                                    : take_from(node->post_hooks(), hooked.after);
  };
  hooked_.erase(std::remove_if(hooked_.begin(), hooked_.end(), taken_off), hooked_.end());
}

bool requires_gradient(const ForwardTensors& outputs) {
  return c10::GradMode::is_enabled() &&
         std::any_of(outputs.elements.begin(), outputs.elements.end(),
                     [](const auto& element) { return element.tensor.requires_grad(); });
}

}  // namespace gradmon

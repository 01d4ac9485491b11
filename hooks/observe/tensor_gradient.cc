// SPDX-License-Identifier: Apache-2.0
#include "hooks/observe/tensor_gradient.h"

#include <ATen/SequenceNumber.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <new>
#include <stdexcept>
#include <utility>

#include "hooks/device/cuda_totals.h"
#include "hooks/device/device_stats.h"
#include "hooks/rows/hook_fuse.h"
#include "hooks/rows/wrapper_tensor.h"

namespace gradmon {

GradientSource GradientSource::of(const at::Tensor& tensor) {
  if (!tensor.requires_grad()) return {};
  if (NodePointer node = tensor.grad_fn())
    return {Kind::node, node, static_cast<std::size_t>(tensor.output_nr()), {}};
  return {Kind::leaf, {}, 0, c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr())};
}

bool GradientSource::is(const GradientSource& other) const {
  if (kind == Kind::none || kind != other.kind || output != other.output) return false;
  if (leaf) return *leaf == *other.leaf;
  const auto own = node.lock();
  return own != nullptr && own == other.node.lock();
}

NodePointer GradientSource::find() const {
  if (!leaf) return node.lock();
  const at::Tensor alive(leaf->lock());
  return alive.defined() ? torch::autograd::impl::try_get_grad_accumulator(alive) : nullptr;
}

using torch::autograd::Node;
using torch::autograd::variable_list;

constexpr std::size_t kForgetAt = std::size_t{1} << 16;

static std::atomic<int> weight_passes{0};

void begin_weight_pass() noexcept { weight_passes.fetch_add(1, std::memory_order_relaxed); }
void end_weight_pass() noexcept { weight_passes.fetch_sub(1, std::memory_order_relaxed); }

std::uint64_t next_node() { return at::sequence_number::peek(); }

std::vector<std::vector<InnerEdge>> inner_edges(const std::vector<GradientSource>& sources,
                                                const ForwardTensors& outputs, std::uint64_t first) {
  std::vector<std::vector<InnerEdge>> found(sources.size());
  std::multimap<std::pair<const Node*, std::size_t>, std::size_t> ends;  // to the index in `sources`
  std::vector<NodePointer> held;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto end = sources[i].find();
    if (!end) continue;
    ends.emplace(std::pair(end.get(), sources[i].output), i);
    held.push_back(end);
  }
  std::unordered_set<const Node*> seen;
  std::vector<NodePointer> next;
  const auto visit = [&](const NodePointer& node) {
    if (node && node->sequence_nr() >= first && node->num_outputs() > 0 && seen.insert(node.get()).second)
      next.push_back(node);
  };
  for (const ForwardTensors::Element& output : outputs.elements) {
    if (output.tensor.requires_grad()) visit(output.tensor.grad_fn());
  }
  while (!next.empty()) {
    const NodePointer node = std::move(next.back());
    next.pop_back();
    for (std::size_t number = 0; number < node->num_outputs(); ++number) {
      const auto& edge = node->next_edge(number);
      const auto [from, to] = ends.equal_range({edge.function.get(), edge.input_nr});
      for (auto end = from; end != to; ++end) found[end->second].push_back({node, number});
      if (from == to) visit(edge.function);
    }
  }
  return found;
}

// Watches one of the gradients that a node receives or returns.
class GradientWatch {
 public:
  GradientWatch(std::size_t number, TensorGradients::Body body) : number_(number), body_(std::move(body)) {}

  bool arrived() const noexcept { return arrived_.load(std::memory_order_relaxed); }

 protected:
  void inspect(const variable_list& gradients) {
    if (number_ >= gradients.size() || !gradients[number_].defined()) return;
    if (arrived() && weight_passes.load(std::memory_order_relaxed) > 0) return;
    arrived_.store(true, std::memory_order_relaxed);
    body_(gradients[number_], {});
  }

 private:
  const std::size_t number_;
  const TensorGradients::Body body_;
  std::atomic<bool> arrived_{false};
};

class TensorGradients::PreHook : public IgnoredByCompiledAutograd<torch::autograd::FunctionPreHook>,
                                 public GradientWatch {
 public:
  using GradientWatch::GradientWatch;
  variable_list operator()(const variable_list& gradients) override {
    inspect(gradients);
    return gradients;
  }
};

class TensorGradients::PostHook : public IgnoredByCompiledAutograd<torch::autograd::FunctionPostHook>,
                                  public GradientWatch {
 public:
  using GradientWatch::GradientWatch;
  variable_list operator()(const variable_list& given, const variable_list&) override {
    inspect(given);
    return given;
  }
};

// Adds the gradients that arrive by several edges in one pass. Holds the tensors until all have arrived.
class TensorGradients::EdgeSum {
 public:
  EdgeSum(std::size_t edges, Body body, OnFailure on_failure)
      : body_(std::move(body)), on_failure_(std::move(on_failure)), parts_(edges) {}

  void add(std::size_t edge, const at::Tensor& gradient) noexcept {
    take([&] {
      if (failed_) return false;
      if (parts_[edge].defined()) clear_parts();  // a new pass has begun
      failed_ = true;
      const Unwrapped inner = unwrapped(gradient);
      if (!inner.tensor.defined()) throw std::runtime_error(inner.why);
      const auto is_here = [](const at::Tensor& part) { return part.defined(); };
      if (std::none_of(parts_.begin(), parts_.end(), is_here)) scope_ = inner.scope;
      const auto stream = current_stream(inner.tensor.device());
      if (std::none_of(parts_.begin(), parts_.end(), is_here)) stream_ = stream;
      if (stream != stream_) throw std::runtime_error("they are made on different streams of a device");
      const bool alike = scope_ && inner.scope ? *scope_ == *inner.scope : !scope_ && !inner.scope;
      if (!alike) throw std::runtime_error("they lie differently on the ranks");
      parts_[edge] = inner.tensor.detach();
      failed_ = false;
      return std::all_of(parts_.begin(), parts_.end(), is_here);
    });
  }

  // No more gradients arrive in this pass.
  void end_pass() noexcept {
    take([this] { return !std::exchange(failed_, false); });
  }

  void clear() noexcept {
    const std::lock_guard lock(mutex_);
    clear_parts();
    failed_ = false;
  }

 private:
  void clear_parts() noexcept { std::fill(parts_.begin(), parts_.end(), at::Tensor()); }

  template <typename Complete>
  void take(Complete&& complete) noexcept {
    try {
      std::vector<at::Tensor> taken;
      ScopeText scope;
      {
        const std::lock_guard lock(mutex_);
        if (!complete()) return;
        scope = scope_;
        taken = std::exchange(parts_, std::vector<at::Tensor>(parts_.size()));
      }
      if (const at::Tensor all = sum_of(taken); all.defined()) body_(all, scope);
    } catch (const std::exception& error) {
      {
        const std::lock_guard lock(mutex_);
        clear_parts();
      }
      on_failure_(first_line(error.what()));
    }
  }

  static at::Tensor sum_of(const std::vector<at::Tensor>& parts) {
    const c10::NoGradGuard no_grad;
    at::Tensor sum;
    for (const at::Tensor& part : parts) {
      if (!part.defined()) continue;
      // A replay of the captured graph would add them again.
      if (std::string why = sum.defined() ? why_captured(part.device()) : ""; !why.empty())
        throw std::runtime_error(why);
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
  const OnFailure on_failure_;
  std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<at::Tensor> parts_;
  ScopeText scope_;                    // of all parts
  std::optional<c10::Stream> stream_;  // of all parts; unset: the device has no streams
  bool failed_ = false;                // a gradient of this pass could not be added: no sum
};

namespace {

std::unordered_set<const void*> parameters_of(const WatchedModel& model) {
  std::unordered_set<const void*> found;
  for (const WatchedParameter& parameter : model.parameters)
    found.insert(parameter.tensor->unsafeGetTensorImpl());
  return found;
}

}  // namespace

TensorGradients::TensorGradients(const WatchedModel& model) : parameters_(parameters_of(model)) {}

TensorGradients::~TensorGradients() {
  remove_hooks([](const Hooked&, bool) { return true; });
}

GradientSource TensorGradients::source_of(const at::Tensor& tensor) const {
  const bool parameter = tensor.requires_grad() && parameters_.count(tensor.unsafeGetTensorImpl()) != 0;
  return parameter ? GradientSource{GradientSource::Kind::parameter, {}, 0, {}} : GradientSource::of(tensor);
}

void TensorGradients::watch(const GradientSource& source, Body body) {
  const NodePointer node = source.find();
  if (node)
    add_pre_hook_to(node, std::make_unique<PreHook>(source.output, std::move(body)), source.leaf.has_value());
}

void TensorGradients::watch_edges(const GradientSource& into, std::vector<InnerEdge> edges, Body body,
                                  OnFailure on_failure) {
  if (edges.empty()) return;
  if (edges.size() == 1)
    return add_post_hook_to(edges[0].from, std::make_unique<PostHook>(edges[0].number, std::move(body)));
  const auto sum = std::make_shared<EdgeSum>(edges.size(), std::move(body), std::move(on_failure));
  for (std::size_t i = 0; i < edges.size(); ++i) {
    const auto add = [sum, i](const at::Tensor& gradient, const ScopeText&) { sum->add(i, gradient); };
    add_post_hook_to(edges[i].from, std::make_unique<PostHook>(edges[i].number, add));
  }
  watch(into, [sum](const at::Tensor&, const ScopeText&) { sum->end_pass(); });
  const std::lock_guard lock(mutex_);
  sums_.push_back(sum);
}

void TensorGradients::add_pre_hook_to(const NodePointer& node, std::unique_ptr<PreHook> hook, bool leaf) {
  const std::lock_guard lock(mutex_);
  forget_dead_hooks();
  hooked_.push_back({node, hook.get(), nullptr, leaf, step_});
  node->add_pre_hook(std::move(hook));
}

void TensorGradients::add_post_hook_to(const NodePointer& node, std::unique_ptr<PostHook> hook) {
  const std::lock_guard lock(mutex_);
  forget_dead_hooks();
  hooked_.push_back({node, nullptr, hook.get(), false, step_});
  node->add_post_hook(std::move(hook));
}

void TensorGradients::forget_dead_hooks() {
  if (hooked_.size() < forget_at_) return;
  const auto dead_hook = [](const Hooked& hooked) { return hooked.node.expired(); };
  hooked_.erase(std::remove_if(hooked_.begin(), hooked_.end(), dead_hook), hooked_.end());
  const auto dead_sum = [](const std::weak_ptr<EdgeSum>& sum) { return sum.expired(); };
  sums_.erase(std::remove_if(sums_.begin(), sums_.end(), dead_sum), sums_.end());
  forget_at_ = std::max(kForgetAt, 2 * hooked_.size());
}

void TensorGradients::begin_step() noexcept {
  const std::lock_guard lock(mutex_);
  ++step_;
}

void TensorGradients::end_step() noexcept {
  remove_hooks(
      [this](const Hooked& hooked, bool arrived) { return hooked.leaf || hooked.step != step_ || arrived; });
  const std::lock_guard lock(mutex_);
  for (const std::weak_ptr<EdgeSum>& sum : std::exchange(sums_, {})) {
    if (const auto alive = sum.lock()) alive->clear();
  }
}

template <typename Condition>
void TensorGradients::remove_hooks(Condition&& condition) noexcept {
  std::vector<NodePointer> nodes;  // released without the lock: destroying a node may need the GIL
  const std::lock_guard lock(mutex_);
  try {
    nodes.reserve(hooked_.size());
  } catch (const std::bad_alloc&) {  // The nodes are released with the lock held.
  }
  const auto taken_off = [&](const Hooked& hooked) {
    const auto node = hooked.node.lock();
    if (!node) return true;
    if (nodes.size() < nodes.capacity()) nodes.push_back(node);
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

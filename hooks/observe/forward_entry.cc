// SPDX-License-Identifier: Apache-2.0
#include "hooks/observe/forward_listener.h"

#include <mutex>
#include <utility>

#include "hooks/observe/graph_node.h"

namespace gradmon::forward_entry {

std::atomic<int> observers{0};

namespace {

using Observers = std::vector<std::shared_ptr<ForwardObserver>>;

// The armed observers of the process. A change replaces the list by a new one.
struct List {
  std::mutex mutex;
  // Guarded by mutex.
  std::shared_ptr<const Observers> armed = std::make_shared<Observers>();
};

List& list() {
  static auto* const only = new List;  // Never destroyed: threads may outlive main().
  return *only;
}

std::shared_ptr<const Observers> armed_now() {
  const std::lock_guard lock(list().mutex);
  return list().armed;
}

template <typename Report>
void for_each_armed(Report report) {
  const std::shared_ptr<const Observers> armed = armed_now();  // keeps the observers alive
  for (const auto& observer : *armed) report(*observer);
}

void replace(Observers changed) {
  auto fresh = std::make_shared<const Observers>(std::move(changed));
  observers.store(static_cast<int>(fresh->size()), std::memory_order_relaxed);
  list().armed.swap(fresh);
}

}  // namespace

void entered(const void* module, ModuleMode mode, const ForwardTensors& inputs) noexcept {
  entered_in_graph(module, mode, inputs, kEagerCall);
}

void left(const void* module, const ForwardTensors& outputs) noexcept {
  left_in_graph(module, outputs, kEagerCall);
}

void abandoned(const void* module) noexcept {
  for_each_armed([&](ForwardObserver& observer) { observer.abandoned(module); });
}

void tapped(std::string_view name, const at::Tensor& tensor) noexcept {
  for_each_armed([&](ForwardObserver& observer) { observer.tapped(name, tensor); });
}

void attended(const void* module, std::string_view name, const at::Tensor& q, const at::Tensor& k,
              Causal causal) noexcept {
  for_each_armed([&](ForwardObserver& observer) { observer.attended(module, name, q, k, causal); });
}

GraphCall call_in_graph(const GraphSite& site) noexcept {
  static std::atomic<GraphCall> last{0};
  GraphCall call = kUnknownCall;
  if (within_backward()) {
    for_each_armed([&](ForwardObserver& observer) {
      const GraphCall repeated = observer.recomputed_in_graph(site);
      if (call == kUnknownCall) call = repeated;
    });
    return call;
  }
  call = ++last;
  for_each_armed([&](ForwardObserver& observer) { observer.called_in_graph(site, call); });
  return call;
}

void entered_in_graph(const void* module, ModuleMode mode, const ForwardTensors& inputs,
                      GraphCall call) noexcept {
  for_each_armed([&](ForwardObserver& observer) { observer.entered(module, mode, inputs, call); });
}

void left_in_graph(const void* module, const ForwardTensors& outputs, GraphCall call) noexcept {
  for_each_armed([&](ForwardObserver& observer) { observer.left(module, outputs, call); });
}

void gradients_in_graph(GraphCall call, GraphSide side, const ForwardTensors& gradients) noexcept {
  for_each_armed([&](ForwardObserver& observer) { observer.gradients_in_graph(call, side, gradients); });
}

void arm(std::shared_ptr<ForwardObserver> observer) {
  const std::lock_guard lock(list().mutex);
  Observers changed = *list().armed;
  for (const auto& known : changed) {
    if (known == observer) return;
  }
  changed.push_back(std::move(observer));
  replace(std::move(changed));
}

void disarm(const ForwardObserver& observer) noexcept {
  const std::lock_guard lock(list().mutex);
  Observers changed;
  for (const auto& known : *list().armed) {
    if (known.get() != &observer) changed.push_back(known);
  }
  if (changed.size() != list().armed->size()) replace(std::move(changed));
}

}  // namespace gradmon::forward_entry

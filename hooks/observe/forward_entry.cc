// SPDX-License-Identifier: Apache-2.0
#include "hooks/observe/forward_entry.h"

#include <mutex>
#include <utility>

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
  for_each_armed([&](ForwardObserver& observer) { observer.entered(module, mode, inputs); });
}

void left(const void* module, const ForwardTensors& outputs) noexcept {
  for_each_armed([&](ForwardObserver& observer) { observer.left(module, outputs); });
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

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
  static auto* const the_list = new List;  // Never destroyed: threads may outlive main().
  return *the_list;
}

std::shared_ptr<const Observers> armed_now() {
  const std::lock_guard lock(list().mutex);
  return list().armed;
}

template <typename Tell>
void tell_all(Tell tell) {
  const std::shared_ptr<const Observers> those_armed = armed_now();  // keeps the observers alive
  for (const auto& observer : *those_armed) tell(*observer);
}

void replace(Observers changed) {
  auto fresh = std::make_shared<const Observers>(std::move(changed));
  observers.store(static_cast<int>(fresh->size()), std::memory_order_relaxed);
  list().armed.swap(fresh);
}

}  // namespace

void entered(const void* module, ModuleMode mode, const ForwardTensors& inputs) noexcept {
  tell_all([&](ForwardObserver& observer) { observer.entered(module, mode, inputs); });
}

void left(const void* module, const ForwardTensors& outputs) noexcept {
  tell_all([&](ForwardObserver& observer) { observer.left(module, outputs); });
}

void abandoned(const void* module) noexcept {
  tell_all([&](ForwardObserver& observer) { observer.abandoned(module); });
}

void tapped(std::string_view name, const at::Tensor& tensor) noexcept {
  tell_all([&](ForwardObserver& observer) { observer.tapped(name, tensor); });
}

void attended(const void* module, std::string_view name, const at::Tensor& q, const at::Tensor& k,
              Causal causal) noexcept {
  tell_all([&](ForwardObserver& observer) { observer.attended(module, name, q, k, causal); });
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

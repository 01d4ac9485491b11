// SPDX-License-Identifier: Apache-2.0
#include "hooks/forward_entry.h"

#include <mutex>
#include <utility>

namespace gradmon::forward_entry {

std::atomic<int> observers{0};

namespace {

using Observers = std::vector<std::shared_ptr<ForwardObserver>>;

// The process's one list, replaced whole.
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

void replace(Observers changed) {
  auto fresh = std::make_shared<const Observers>(std::move(changed));
  observers.store(static_cast<int>(fresh->size()), std::memory_order_relaxed);
  list().armed.swap(fresh);
}

}  // namespace

void entered(const void* module, ModuleMode mode, const ForwardTensors& inputs) noexcept {
  for (const auto& observer : *armed_now()) observer->entered(module, mode, inputs);
}

void left(const void* module, const ForwardTensors& outputs) noexcept {
  for (const auto& observer : *armed_now()) observer->left(module, outputs);
}

void abandoned(const void* module) noexcept {
  for (const auto& observer : *armed_now()) observer->abandoned(module);
}

void tapped(std::string_view name, const at::Tensor& tensor) noexcept {
  for (const auto& observer : *armed_now()) observer->tapped(name, tensor);
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

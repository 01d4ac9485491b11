// SPDX-License-Identifier: Apache-2.0
#include "hooks/collective_observer.h"

#include <ATen/record_function.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace gradmon {
namespace {

// torch calls plain functions, so whom they are for has to be found from there.
// Never destroyed: a call may be made while the process ends.
struct Registry {
  std::mutex mutex;
  // Guarded by mutex.
  std::vector<std::shared_ptr<CollectiveListener>> listeners;
  at::CallbackHandle handle = 0;

  std::vector<std::shared_ptr<CollectiveListener>> snapshot() {
    const std::lock_guard lock(mutex);
    return listeners;
  }
};

Registry& registry() {
  static auto* const only = new Registry;
  return *only;
}

struct Visits : at::ObserverContext {
  std::vector<std::shared_ptr<CollectiveListener>> listeners;  // outlive their visits
  std::vector<std::unique_ptr<CollectiveListener::Visit>> visits;
};

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) noexcept {
  if (!is_collective(function.name())) return nullptr;
  try {
    auto context = std::make_unique<Visits>();
    context->listeners = registry().snapshot();
    const CollectiveCall call = collective_call(function.name(), function.inputs());
    for (const auto& listener : context->listeners) {
      if (auto visit = listener->calling(call)) context->visits.push_back(std::move(visit));
    }
    if (context->visits.empty()) return nullptr;
    return context;
  } catch (...) {
    return nullptr;
  }
}

void on_end(const at::RecordFunction& function, at::ObserverContext* context) noexcept {
  if (context == nullptr) return;
  try {
    const auto work = work_of(function.outputs());
    for (const auto& visit : static_cast<Visits*>(context)->visits) visit->launched(work);
  } catch (...) {  // A listener says what failed; nothing passes through training.
  }
}

}  // namespace

CollectiveObserver::CollectiveObserver(std::shared_ptr<CollectiveListener> listener)
    : listener_(std::move(listener)) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.listeners.push_back(listener_);
  if (all.listeners.size() > 1) return;
  all.handle = at::addGlobalCallback(at::RecordFunctionCallback(on_start, on_end)
                                         .needsInputs(true)
                                         .needsOutputs(true)
                                         .scopes({at::RecordScope::FUNCTION}));
}

CollectiveObserver::~CollectiveObserver() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto place = std::find(all.listeners.begin(), all.listeners.end(), listener_);
  if (place != all.listeners.end()) all.listeners.erase(place);
  if (all.listeners.empty()) at::removeCallback(all.handle);
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "hooks/collectives/collective_observer.h"

#include <ATen/record_function.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

namespace gradmon {
namespace {

// The listeners of the process. Global, because torch's callbacks are plain functions. Never destroyed: a
// collective call may be made while the process exits.
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
  std::vector<std::shared_ptr<CollectiveListener>> listeners;  // must outlive their visits
  std::vector<std::unique_ptr<CollectiveListener::Visit>> visits;
};

template <typename Body>
void telling(const Visits& context, Body&& body) noexcept {
  const auto tell = [&](std::string_view cause) {
    for (const auto& listener : context.listeners) listener->failed(cause);
  };
  try {
    body();
  } catch (const std::exception& error) {
    tell(error.what());
  } catch (...) {
    tell("an exception of unknown type");
  }
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  if (!is_collective(function.name())) return nullptr;
  auto context = std::make_unique<Visits>();
  context->listeners = registry().snapshot();
  telling(*context, [&] {
    const CollectiveCall call = collective_call(function.name(), function.inputs());
    for (const auto& listener : context->listeners) {
      if (auto visit = listener->calling(call)) context->visits.push_back(std::move(visit));
    }
  });
  if (context->visits.empty()) return nullptr;
  return context;
}

void on_end(const at::RecordFunction& function, at::ObserverContext* context) noexcept {
  if (context == nullptr) return;
  const auto& visits = *static_cast<Visits*>(context);
  telling(visits, [&] {
    const auto work = work_of(function.outputs());
    for (const auto& visit : visits.visits) visit->launched(work);
  });
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

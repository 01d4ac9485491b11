// SPDX-License-Identifier: Apache-2.0
#include "hooks/probes/collective_observer.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>
#include <vector>

#include "hooks/observe/hook_gate.h"

namespace gradmon {
namespace {

// The listeners of the process. Global, because torch's callbacks are plain functions. Never destroyed: a
// collective call may be made while the process exits.
struct Registry {
  std::mutex mutex;
  // Guarded by mutex.
  std::vector<std::shared_ptr<CollectiveListener>> listeners;

  std::vector<std::shared_ptr<CollectiveListener>> snapshot() {
    const std::lock_guard lock(mutex);
    return listeners;
  }
};

Registry& registry() {
  static auto* const only = new Registry;
  return *only;
}

std::atomic<std::uint64_t> last_coalescing{0};
thread_local std::uint64_t coalescing = 0;  // the number of begin_coalescing(); 0: calls are sent at once

thread_local int functional_operators = 0;  // running on this thread

bool is_on_cpu(const CollectiveCall& call) {
  return std::any_of(call.outputs.begin(), call.outputs.end(),
                     [](const at::Tensor& output) { return output.defined() && output.is_cpu(); });
}

struct CallScopes : at::ObserverContext {
  std::vector<std::shared_ptr<CollectiveListener>> listeners;  // must outlive their scopes
  std::vector<std::unique_ptr<CollectiveListener::CallScope>> scopes;
};

// Runs `body`. An exception stops here; the listeners get its cause.
template <typename Body>
void guarded(const CallScopes& context, Body&& body) noexcept {
  const auto report = [&](std::string_view cause) {
    for (const auto& listener : context.listeners) listener->on_failure(cause);
  };
  try {
    body();
  } catch (const std::exception& error) {
    report(error.what());
  } catch (...) {
    report("an exception of unknown type");
  }
}

template <typename Tell>
void tell_all(Tell&& tell) noexcept {
  CallScopes context;
  guarded(context, [&] {
    context.listeners = registry().snapshot();
    for (const auto& listener : context.listeners) tell(*listener);
  });
}

void waited(const std::vector<c10::IValue>& results) noexcept {
  if (results.empty() || !results.front().isTensor()) return;
  tell_all([&](CollectiveListener& listener) { listener.on_waited(results.front().toTensor()); });
}

void begin_symmetric(const at::RecordFunction& function, CallScopes& context) {
  const auto call = symmetric_memory_call(function.name(), function.inputs());
  const std::string unread = call ? "" : why_unread(function.name());
  for (const auto& listener : context.listeners) {
    if (!unread.empty()) listener->on_unread(unread);
    if (!call) continue;
    if (auto scope = listener->on_call(*call)) context.scopes.push_back(std::move(scope));
  }
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  if (is_functional(function.name())) {
    ++functional_operators;
    return std::make_unique<CallScopes>();
  }
  const bool symmetric = is_symmetric_memory(function.name());
  if (!symmetric && !is_collective(function.name())) return nullptr;
  auto context = std::make_unique<CallScopes>();
  context->listeners = registry().snapshot();
  guarded(*context, [&] {
    if (symmetric) return begin_symmetric(function, *context);
    CollectiveCall call = collective_call(function.name(), function.inputs());
    if (!is_on_cpu(call)) call.coalesced = coalescing;
    call.functional = functional_operators > 0;
    for (const auto& listener : context->listeners) {
      if (auto scope = listener->on_call(call)) context->scopes.push_back(std::move(scope));
    }
  });
  if (context->scopes.empty()) return nullptr;
  return context;
}

void on_end(const at::RecordFunction& function, at::ObserverContext* context) noexcept {
  if (context == nullptr) return;
  if (is_functional(function.name())) {
    --functional_operators;
    if (is_functional_wait(function.name())) waited(function.outputs());
    return;
  }
  const auto& scopes = *static_cast<CallScopes*>(context);
  guarded(scopes, [&] {
    if (function.outputs().empty()) {
      for (const auto& scope : scopes.scopes) scope->on_throw();
      return;
    }
    const auto work = work_of(function.outputs());
    const c10::IValue& first = function.outputs().front();
    for (const auto& scope : scopes.scopes) {
      if (first.isTensor()) scope->on_output(first.toTensor());
      scope->on_return(work);
    }
  });
}

SharedCallback& callback() {
  static auto* const only = new SharedCallback(at::RecordFunctionCallback(on_start, on_end)
                                                   .needsInputs(true)
                                                   .needsOutputs(true)
                                                   .scopes({at::RecordScope::FUNCTION}));
  return *only;
}

}  // namespace

CollectiveObserver::CollectiveObserver(std::shared_ptr<CollectiveListener> listener)
    : listener_(std::move(listener)) {
  {
    const std::lock_guard lock(registry().mutex);
    registry().listeners.push_back(listener_);
  }
  callback().add_user();
}

CollectiveObserver::~CollectiveObserver() {
  callback().remove_user();
  const std::lock_guard lock(registry().mutex);
  auto& listeners = registry().listeners;
  const auto own = std::find(listeners.begin(), listeners.end(), listener_);
  if (own != listeners.end()) listeners.erase(own);
}

bool collectives_are_observed() noexcept {
  const std::lock_guard lock(registry().mutex);
  return !registry().listeners.empty();
}

std::uint64_t begin_coalescing() noexcept { return coalescing = ++last_coalescing; }

std::uint64_t end_coalescing() noexcept { return std::exchange(coalescing, 0); }

std::uint64_t coalescings() noexcept { return last_coalescing; }

void coalesced_calls_are_over(std::uint64_t number, CoalescedWork work) noexcept {
  tell_all([&](CollectiveListener& listener) { listener.on_coalesced(number, work); });
}

bool calls_are_unwaited() noexcept {
  const std::lock_guard lock(registry().mutex);
  const auto& listeners = registry().listeners;
  return std::any_of(listeners.begin(), listeners.end(),
                     [](const auto& listener) { return listener->has_unwaited_calls(); });
}

void call_is_waited_for(const c10::ivalue::Future& future) noexcept {
  tell_all([&](CollectiveListener& listener) { listener.on_waited(future); });
}

void future_is_taken(const c10::ivalue::Future& future) noexcept {
  tell_all([&](CollectiveListener& listener) { listener.on_future_taken(future); });
}

void communication_is_unread(const std::string& sentence) noexcept {
  tell_all([&](CollectiveListener& listener) { listener.on_unread(sentence); });
}

}  // namespace gradmon

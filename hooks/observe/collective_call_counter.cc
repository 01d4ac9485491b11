// SPDX-License-Identifier: Apache-2.0
#include "hooks/observe/collective_call_counter.h"

#include <atomic>

#include "hooks/observe/collective_call.h"
#include "hooks/observe/shared_callback.h"

namespace gradmon {
namespace {

// Global, because torch's callback is a plain function.
std::atomic<std::uint64_t> calls_made{0};

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  if (is_collective(function.name()) || is_symmetric_memory(function.name()))
    calls_made.fetch_add(1, std::memory_order_acq_rel);
  return nullptr;
}

SharedCallback& callback() {
  static auto* const only =
      new SharedCallback(at::RecordFunctionCallback(on_start).scopes({at::RecordScope::FUNCTION}));
  return *only;
}

}  // namespace

CollectiveCallCounter::CollectiveCallCounter() { callback().add_user(); }

CollectiveCallCounter::~CollectiveCallCounter() { callback().remove_user(); }

std::uint64_t CollectiveCallCounter::calls() const noexcept {
  return calls_made.load(std::memory_order_acquire);
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#include "hooks/observe/communication_count.h"

#include <ATen/record_function.h>

#include <atomic>
#include <mutex>

#include "hooks/observe/collective_call.h"

namespace gradmon {
namespace {

// Global, because torch's callback is a plain function.
std::atomic<std::uint64_t> calls_made{0};

struct Users {
  std::mutex mutex;
  // Guarded by mutex.
  int count = 0;
  at::CallbackHandle handle = 0;
};

Users& users() {
  static auto* const only = new Users;
  return *only;
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  if (is_collective(function.name())) calls_made.fetch_add(1, std::memory_order_acq_rel);
  return nullptr;
}

}  // namespace

CommunicationCount::CommunicationCount() {
  Users& all = users();
  const std::lock_guard lock(all.mutex);
  if (all.count++ > 0) return;
  all.handle =
      at::addGlobalCallback(at::RecordFunctionCallback(on_start).scopes({at::RecordScope::FUNCTION}));
}

CommunicationCount::~CommunicationCount() {
  Users& all = users();
  const std::lock_guard lock(all.mutex);
  if (--all.count == 0) at::removeCallback(all.handle);
}

std::uint64_t CommunicationCount::calls() const noexcept {
  return calls_made.load(std::memory_order_acquire);
}

}  // namespace gradmon

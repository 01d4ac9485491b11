// SPDX-License-Identifier: Apache-2.0
#include "control/link/closed_in_children.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>

namespace gradmon {
namespace {

constexpr int kFree = -1;

// Never destroyed, because a process may fork during its exit.
std::array<std::atomic<int>, 64>& slots() {
  static auto* const made = [] {
    auto* all = new std::array<std::atomic<int>, 64>;
    for (auto& slot : *all) slot = kFree;
    return all;
  }();
  return *made;
}

void in_child() {
  for (auto& slot : slots()) {
    if (const int fd = slot.exchange(kFree); fd != kFree) close(fd);
  }
}

}  // namespace

ClosedInChildren::ClosedInChildren(int fd) {
  static const int registered = pthread_atfork(nullptr, nullptr, in_child);
  (void)registered;
  for (int slot = 0; slot < static_cast<int>(slots().size()); ++slot) {
    int expected = kFree;
    if (!slots()[static_cast<std::size_t>(slot)].compare_exchange_strong(expected, fd)) continue;
    slot_ = slot;
    return;
  }
}

ClosedInChildren::~ClosedInChildren() {
  if (slot_ >= 0) slots()[static_cast<std::size_t>(slot_)] = kFree;
}

}  // namespace gradmon

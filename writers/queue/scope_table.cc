// SPDX-License-Identifier: Apache-2.0
#include "writers/queue/scope_table.h"

namespace gradmon {
namespace {

std::uint64_t key_of(Kind kind, std::uint32_t target) {
  return (static_cast<std::uint64_t>(kind) << 32U) | target;
}

}  // namespace

void ScopeTable::set(Kind kind, std::uint32_t target, std::uint32_t scope) {
  const std::lock_guard lock(mutex_);
  std::uint32_t& known = scopes_[key_of(kind, target)];
  if (known == scope) return;
  known = scope;
  version_.fetch_add(1, std::memory_order_release);
}

std::uint32_t ScopeTable::of(Kind kind, std::uint32_t target) const {
  const std::lock_guard lock(mutex_);
  const auto found = scopes_.find(key_of(kind, target));
  return found == scopes_.end() ? 0 : found->second;
}

}  // namespace gradmon

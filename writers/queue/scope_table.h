// SPDX-License-Identifier: Apache-2.0
// The scopes of the rows of each target and kind (writers/FORMAT.md, "scopes.json"). All members may be
// called on any thread. version() takes no lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "control/vocabulary.h"

namespace gradmon {

class ScopeTable {
 public:
  // `scope`: id of a JSON object with the key "scope", in the NameTable that has the target.
  void set(Kind kind, std::uint32_t target, std::uint32_t scope);
  // 0: unknown.
  std::uint32_t of(Kind kind, std::uint32_t target) const;
  // Grows with each change, from 1 on.
  std::uint32_t version() const noexcept { return version_.load(std::memory_order_acquire); }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::uint32_t> scopes_;  // guarded by mutex_; by kind and target
  std::atomic<std::uint32_t> version_{1};
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace gradmon {

// Sets a flag in every child that this process forks during the guard's lifetime. A fork does not copy
// threads, so code that relies on threads must do nothing in the child.
class ForkGuard {
 public:
  explicit ForkGuard(std::atomic<bool>& flag);
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

 private:
  std::atomic<bool>& flag_;
};

}  // namespace gradmon

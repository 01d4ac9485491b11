// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace gradmon {

// Sets a flag in every child that this process forks, for as long as it lives:
// threads are not copied, so what relies on them must do nothing there.
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

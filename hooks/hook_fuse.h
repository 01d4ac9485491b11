// SPDX-License-Identifier: Apache-2.0
// The first failure in a set of hooks puts all of them to rest.
#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace gradmon {

struct HookFailure {
  std::string target;  // the parameter being read; empty where there was none
  std::string cause;
};

// Any thread.
class HookFuse {
 public:
  bool tripped() const noexcept { return tripped_.load(std::memory_order_acquire); }
  // Keeps and logs the first failure only, of its cause the first line (torch
  // adds a backtrace).
  void trip(std::string_view target, std::string_view cause) noexcept;
  std::optional<HookFailure> failure() const;

  // Runs `body`; what it throws trips the fuse and goes no further.
  template <typename Body>
  void guard(std::string_view target, Body&& body) noexcept {
    try {
      body();
    } catch (const std::exception& error) {
      trip(target, error.what());
    } catch (...) {
      trip(target, "an exception of unknown type");
    }
  }

 private:
  // Own synchronisation.
  std::atomic<bool> tripped_{false};
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::optional<HookFailure> failure_;
};

}  // namespace gradmon

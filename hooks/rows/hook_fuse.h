// SPDX-License-Identifier: Apache-2.0
// Stops all hooks of a set after the first failure of one of them. All hook bodies run through the
// fuse, so it also measures their time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace gradmon {

struct HookFailure {
  std::string target;  // what was being read: a parameter, a module, an operator …; "": no target
  std::string cause;
};

// The first line of an exception's text, because torch appends a backtrace. Never empty.
std::string first_line(std::string_view text);

// Any thread.
class HookFuse {
 public:
  bool tripped() const noexcept { return tripped_.load(std::memory_order_acquire); }
  // Records and logs the first failure only, with the first line of its cause.
  void trip(std::string_view target, std::string_view cause) noexcept;
  std::optional<HookFailure> failure() const;
  // Time spent in hook bodies so far, on all threads together. A nested body counts once. Includes the
  // time passed to add_time() for hooks that have a fuse of their own.
  std::chrono::nanoseconds hook_time() const noexcept {
    return std::chrono::nanoseconds{spent_ns_.load(std::memory_order_relaxed)};
  }
  void add_time(std::chrono::nanoseconds time) noexcept {
    spent_ns_.fetch_add(time.count(), std::memory_order_relaxed);
  }

  // Runs `body`. An exception trips the fuse and stops here.
  template <typename Body>
  void guard(std::string_view target, Body&& body) noexcept {
    const Stopwatch watch(spent_ns_);
    try {
      body();
    } catch (const std::exception& error) {
      trip(target, error.what());
    } catch (...) {
      trip(target, "an exception of unknown type");
    }
  }

 private:
  class Stopwatch {
   public:
    explicit Stopwatch(std::atomic<std::int64_t>& total) noexcept : total_(total) {
      if (depth_++ == 0) begun_ = std::chrono::steady_clock::now();
    }
    ~Stopwatch() {
      if (--depth_ > 0) return;
      const std::chrono::nanoseconds spent = std::chrono::steady_clock::now() - begun_;
      total_.fetch_add(spent.count(), std::memory_order_relaxed);
    }
    Stopwatch(const Stopwatch&) = delete;
    Stopwatch& operator=(const Stopwatch&) = delete;

   private:
    static inline thread_local int depth_ = 0;  // nesting depth of bodies on this thread
    std::atomic<std::int64_t>& total_;
    std::chrono::steady_clock::time_point begun_;
  };

  // Own synchronisation.
  std::atomic<bool> tripped_{false};
  std::atomic<std::int64_t> spent_ns_{0};
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::optional<HookFailure> failure_;
};

}  // namespace gradmon

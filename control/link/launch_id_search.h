// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "control/link/background_call.h"
#include "control/aliases.h"

namespace gradmon {

// A key-value store that all ranks of a job reach even without a shared directory. A call is bounded in time
// but may take seconds: never call it on the training thread or the agent thread. After an error it is
// unknown whether the operation took effect.
class SharedStore {
 public:
  virtual ~SharedStore() = default;

  // Sets `key` to `value` (not empty) unless it has a value. Returns the resulting value.
  virtual Result<std::string> put_once(const std::string& key, const std::string& value) = 0;
  // Sets `key` to `value` (not empty), replacing an existing value.
  virtual Result<void> put(const std::string& key, const std::string& value) = 0;
  // Adds `number` to the counter `key`, which starts at 0. Returns the sum.
  virtual Result<std::int64_t> add(const std::string& key, std::int64_t number) = 0;
  // Returns nullopt if `key` has no value.
  virtual Result<std::optional<std::string>> get(const std::string& key) = 0;
};

struct LaunchId {
  std::string id;
  std::string source;  // its source, for people: "TORCHELASTIC_RUN_ID"
};

// Makes one try. Returns the id, nullopt if rank 0 has not published it yet, or an error if the store does
// not answer. A try blocks its thread for at most 3 s: never call it on the training thread. One try at a
// time, on any thread.
using AskForLaunchId = std::function<Result<std::optional<LaunchId>>()>;

// Asks for the launch id until it is known: at once, then every second for the first minute, then every 10 s.
// Tries run one at a time, each as a BackgroundCall. Agent thread only; no member function blocks.
class LaunchIdSearch {
 public:
  using Time = std::chrono::milliseconds;  // of any monotonic clock

  // `ask` must not be null. A try that returns nullopt or an error is repeated.
  LaunchIdSearch(AskForLaunchId ask, Time now) : ask_(std::move(ask)), start_(now), next_(now) {}
  LaunchIdSearch(const LaunchIdSearch&) = delete;
  LaunchIdSearch& operator=(const LaunchIdSearch&) = delete;

  // Takes the result of a finished try and begins the next one if it is due. Returns the id once it is
  // known.
  std::optional<LaunchId> poll(Time now) {
    if (auto found = try_.poll()) {
      last_error_ = *found ? "" : found->error();
      if (*found && **found) known_ = std::move(***found);
    }
    if (!known_ && !try_.under_way() && now >= next_) {
      next_ = now + (now - start_ < kFastPeriod ? kFastInterval : kSlowInterval);
      try_.begin(ask_);
    }
    return known_;
  }
  // The error of the last try; "" if rank 0 has not published the id yet.
  const std::string& last_error() const { return last_error_; }

 private:
  static constexpr Time kFastInterval{1'000};
  static constexpr Time kFastPeriod{60'000};
  static constexpr Time kSlowInterval{10'000};

  // Constant after construction.
  const AskForLaunchId ask_;
  const Time start_;

  Time next_;
  BackgroundCall<std::optional<LaunchId>> try_;
  std::string last_error_;
  std::optional<LaunchId> known_;
};

}  // namespace gradmon

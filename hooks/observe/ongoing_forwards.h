// SPDX-License-Identifier: Apache-2.0
// Passes data of a listener from before_forward to the matching after_forward.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>

#include "hooks/observe/forward_listener.h"

namespace gradmon {

// Any thread. The entry of a forward that throws stays until clear().
template <typename Call>
class OngoingForwards {
 public:
  void begin(const ForwardVisit& visit, Call call) {
    const std::lock_guard lock(mutex_);
    calls_.insert_or_assign(key_of(visit), std::move(call));
  }

  // Removes and returns the data of the matching begin() on this thread; empty without a match.
  std::optional<Call> end(const ForwardVisit& visit) {
    const std::lock_guard lock(mutex_);
    auto call = calls_.extract(key_of(visit));
    if (call.empty()) return std::nullopt;
    return std::move(call.mapped());
  }

  void clear() {
    const std::lock_guard lock(mutex_);
    calls_.clear();
  }

 private:
  using Key = std::tuple<std::thread::id, std::size_t, int, int, bool>;

  static Key key_of(const ForwardVisit& visit) {
    return {std::this_thread::get_id(), visit.module, visit.micro_step, visit.call, visit.recomputed};
  }

  std::mutex mutex_;
  // Guarded by mutex_.
  std::map<Key, Call> calls_;
};

}  // namespace gradmon

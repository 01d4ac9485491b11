// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <queue>
#include <vector>

namespace gradmon {

// Virtual time since a history began.
using Instant = std::chrono::microseconds;

// Something that is due to happen.
struct Due {
  enum class Kind : std::uint8_t {
    turn,
    boundary,
    mail,
    rows,
    hub_turn,
    hub_mail,
    hub_returns,
    incident,
    incident_ends,
    spawn
  };

  Instant at{};
  std::uint64_t order = 0;  // of those at one instant, and the token of a boundary
  Kind kind = Kind::turn;
  std::uint32_t who = 0;   // a process, a rank
  std::uint32_t what = 0;  // a message, an incident, a step
};

// What is due, by time; at one instant, in the order in which it was entered.
class Timeline {
 public:
  std::uint64_t add(Instant at, Due::Kind kind, std::uint32_t who, std::uint32_t what = 0) {
    queue_.push({at, ++entered_, kind, who, what});
    return entered_;
  }
  bool empty() const { return queue_.empty(); }
  Due take() {
    const Due next = queue_.top();
    queue_.pop();
    return next;
  }
  Instant next_at() const { return queue_.top().at; }

 private:
  struct Later {
    bool operator()(const Due& a, const Due& b) const {
      return a.at != b.at ? a.at > b.at : a.order > b.order;
    }
  };
  std::priority_queue<Due, std::vector<Due>, Later> queue_;
  std::uint64_t entered_ = 0;
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <queue>
#include <vector>

namespace gradmon {

// Virtual time since a history began.
using Instant = std::chrono::microseconds;

// An event that is due.
struct Event {
  enum class Kind : std::uint8_t {
    turn,
    boundary,
    rank_message,
    rows,
    hub_turn,
    hub_message,
    hub_returns,
    incident,
    incident_ends,
    spawn
  };

  Instant at{};
  std::uint64_t order = 0;  // order of insertion; identifies a boundary
  Kind kind = Kind::turn;
  std::uint32_t target = 0;   // index of a process, or a rank
  std::uint32_t payload = 0;  // index of a message or incident, a step or a revision
};

// The events that are due, by time; at one instant, by order of insertion.
class Timeline {
 public:
  std::uint64_t add(Instant at, Event::Kind kind, std::uint32_t target, std::uint32_t payload = 0) {
    queue_.push({at, ++entered_, kind, target, payload});
    return entered_;
  }
  bool empty() const { return queue_.empty(); }
  Event take() {
    const Event next = queue_.top();
    queue_.pop();
    return next;
  }
  Instant next_at() const { return queue_.top().at; }

 private:
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.at != b.at ? a.at > b.at : a.order > b.order;
    }
  };
  std::priority_queue<Event, std::vector<Event>, Later> queue_;
  std::uint64_t entered_ = 0;
};

}  // namespace gradmon

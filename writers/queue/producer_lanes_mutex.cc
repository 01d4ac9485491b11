// SPDX-License-Identifier: Apache-2.0
// Replaces producer_lanes.cc in -fsanitize=thread builds.
#include <algorithm>
#include <deque>
#include <mutex>
#include <new>

#include "writers/queue/record_queue.h"

namespace gradmon {

struct ProducerLanes::State {
  std::mutex mutex;
  std::deque<Record> records;  // guarded by mutex
};

ProducerLanes::ProducerLanes() : state_(std::make_unique<State>()) {}

ProducerLanes::~ProducerLanes() = default;

bool ProducerLanes::put(const Record& record) noexcept {
  const std::lock_guard lock(state_->mutex);
  try {
    state_->records.push_back(record);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

std::size_t ProducerLanes::take(Record* into, std::size_t n) noexcept {
  const std::lock_guard lock(state_->mutex);
  const std::size_t count = std::min(n, state_->records.size());
  const auto end = state_->records.begin() + static_cast<std::ptrdiff_t>(count);
  std::copy(state_->records.begin(), end, into);
  state_->records.erase(state_->records.begin(), end);
  return count;
}

std::size_t ProducerLanes::count() const { return 1; }

}  // namespace gradmon

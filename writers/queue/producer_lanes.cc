// SPDX-License-Identifier: Apache-2.0
#include "writers/queue/record_queue.h"

#include <concurrentqueue.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace gradmon {
namespace {

struct Traits : moodycamel::ConcurrentQueueDefaultTraits {
  static const size_t BLOCK_SIZE = 256;
};
using Queue = moodycamel::ConcurrentQueue<Record, Traits>;

// A producer token of one queue, used by one thread at a time. A thread may keep its lane after the
// queue is destroyed; the token is then empty.
struct Lane {
  std::atomic<bool> taken{true};
  std::optional<moodycamel::ProducerToken> token;
};

std::atomic<std::uint64_t> next_id{1};

// The lanes of one thread: one for each queue that it has put records into, by the queue's id. The
// destructor frees them for other threads.
struct LaneSlots {
  ~LaneSlots() {
    for (const auto& [id, lane] : all) lane->taken.store(false, std::memory_order_release);
  }

  std::uint64_t last_id = 0;
  Lane* last = nullptr;
  std::vector<std::pair<std::uint64_t, std::shared_ptr<Lane>>> all;
};
thread_local LaneSlots lanes_of_this_thread;

}  // namespace

struct ProducerLanes::State {
  Lane* lane_of_this_thread();

  const std::uint64_t id = next_id.fetch_add(1);
  Queue queue{0};
  moodycamel::ConsumerToken reader{queue};
  std::mutex mutex;
  std::vector<std::shared_ptr<Lane>> lanes;  // guarded by mutex
};

Lane* ProducerLanes::State::lane_of_this_thread() {
  if (lanes_of_this_thread.last_id == id) return lanes_of_this_thread.last;
  const auto known = std::find_if(lanes_of_this_thread.all.begin(), lanes_of_this_thread.all.end(),
                                  [this](const auto& entry) { return entry.first == id; });
  std::shared_ptr<Lane> lane = known != lanes_of_this_thread.all.end() ? known->second : nullptr;
  if (!lane) {
    const std::lock_guard lock(mutex);
    for (const auto& other : lanes) {
      if (!other->taken.exchange(true, std::memory_order_acquire)) {
        lane = other;
        break;
      }
    }
    if (!lane) {
      lane = std::make_shared<Lane>();
      lane->token.emplace(queue);
      lanes.push_back(lane);
    }
    lanes_of_this_thread.all.erase(
        std::remove_if(lanes_of_this_thread.all.begin(), lanes_of_this_thread.all.end(),
                       [](const auto& entry) { return entry.second.use_count() == 1; }),
        lanes_of_this_thread.all.end());
    lanes_of_this_thread.all.emplace_back(id, lane);
  }
  lanes_of_this_thread.last_id = id;
  lanes_of_this_thread.last = lane.get();
  return lanes_of_this_thread.last;
}

ProducerLanes::ProducerLanes() : state_(std::make_unique<State>()) {}

ProducerLanes::~ProducerLanes() {
  for (const auto& lane : state_->lanes) lane->token.reset();
}

bool ProducerLanes::put(const Record& record) noexcept {
  try {
    const Lane* const lane = state_->lane_of_this_thread();
    return lane->token->valid() && state_->queue.enqueue(*lane->token, record);
  } catch (const std::bad_alloc&) {
    return false;
  }
}

std::size_t ProducerLanes::take(Record* into, std::size_t n) noexcept {
  return state_->queue.try_dequeue_bulk(state_->reader, into, n);
}

std::size_t ProducerLanes::count() const {
  const std::lock_guard lock(state_->mutex);
  return state_->lanes.size();
}

}  // namespace gradmon

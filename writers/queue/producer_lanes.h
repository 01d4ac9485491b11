// SPDX-License-Identifier: Apache-2.0
// One lane of records per producing thread, read by one thread. FIFO within a lane, no order between
// lanes, unbounded (RecordQueue adds the bound). Implemented with moodycamel's queue and one token
// per thread. Under ThreadSanitizer it is a deque with a mutex, because the sanitizer reports races
// inside moodycamel's code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "writers/queue/record.h"

namespace gradmon {

class ProducerLanes {
 public:
  ProducerLanes();
  // No thread may be inside put or take.
  ~ProducerLanes();

  ProducerLanes(const ProducerLanes&) = delete;
  ProducerLanes& operator=(const ProducerLanes&) = delete;

  // Any thread. Allocates at the first call of a thread, and when a lane grows beyond its largest
  // size so far. The lane of an ended thread is given to the next new thread. False: out of memory.
  bool put(const Record& record) noexcept;

  // One thread at a time. Takes up to n records; returns how many.
  std::size_t take(Record* into, std::size_t n) noexcept;

  // Any thread. Number of lanes: the largest number of producing threads at one time.
  std::size_t count() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace gradmon

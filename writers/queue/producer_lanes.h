// SPDX-License-Identifier: Apache-2.0
// One lane of records per producing thread, merged for one reader: FIFO within
// a lane, no order between lanes, no bound (RecordQueue adds that). It is
// moodycamel's queue with a token per thread; built with -fsanitize=thread it is
// a deque behind a mutex instead, because the races reported inside the
// third party's code would bury ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "writers/queue/record.h"

namespace gradmon {

class ProducerLanes {
 public:
  ProducerLanes();
  // No thread is inside put or take.
  ~ProducerLanes();

  ProducerLanes(const ProducerLanes&) = delete;
  ProducerLanes& operator=(const ProducerLanes&) = delete;

  // Any thread. Allocates at a thread's first call, and where the lane grows
  // beyond what it ever held. A lane whose thread has ended goes to the next
  // new thread. False: out of memory.
  bool put(const Record& record) noexcept;

  // One thread at a time. Up to n records; fewer, or 0, where there are none.
  std::size_t take(Record* into, std::size_t n) noexcept;

  // Any thread. How many lanes there are: as many as there were producing
  // threads at one time.
  std::size_t count() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// How many calls of torch's communication library (c10d) were made: they write
// to tensors and move no version counter.
#pragma once

#include <cstdint>

namespace gradmon {

// While one lives calls are counted, of the whole process, if they go through
// torch's dispatcher (as all do but those of a backend called directly in C++);
// each op of torch then costs some 100 ns more. Made and destroyed on any thread.
class CommunicationCount {
 public:
  CommunicationCount();
  ~CommunicationCount();
  CommunicationCount(const CommunicationCount&) = delete;
  CommunicationCount& operator=(const CommunicationCount&) = delete;

  // So far. A call is counted before it is carried out.
  std::uint64_t calls() const noexcept;
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// Counts the calls of torch's communication library (c10d) and symmetric memory. These calls write to tensors
// without changing a version counter.
#pragma once

#include <cstdint>

namespace gradmon {

// While an instance exists, all calls of the process that go through torch's dispatcher are counted
// (only a backend called directly from C++ bypasses it), and each torch op costs about 100 ns more.
// Any thread.
class CollectiveCallCounter {
 public:
  CollectiveCallCounter();
  ~CollectiveCallCounter();
  CollectiveCallCounter(const CollectiveCallCounter&) = delete;
  CollectiveCallCounter& operator=(const CollectiveCallCounter&) = delete;

  // Calls counted so far in the process. A call is counted before it runs.
  std::uint64_t calls() const noexcept;
};

}  // namespace gradmon

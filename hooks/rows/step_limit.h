// SPDX-License-Identifier: Apache-2.0
// Limits the memory that the hooks keep for one step, because a step never ends if the program stops calling
// the optimizer that ends it.
#pragma once

#include <atomic>
#include <cstddef>

namespace gradmon {

// Any thread.
class StepLimit {
 public:
  // `most`: items in a step. `things`: the items' name in the log, a plural; must outlive this.
  StepLimit(std::size_t most, const char* things) : most_(most), things_(things) {}

  // Returns true if a step that has `count` items is full. Logs it the first time.
  bool reached(std::size_t count) noexcept;

 private:
  const std::size_t most_;
  const char* const things_;
  std::atomic<bool> logged_{false};
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// Limits how much the hooks keep of one step, because a step never ends if the program stops calling the
// optimizer that ends it.
#pragma once

#include <atomic>
#include <cstddef>

namespace gradmon {

// Any thread.
class StepLimit {
 public:
  // `most`: number of things in a step. `things`: their name in the log, a plural; must outlive this.
  StepLimit(std::size_t most, const char* things) : most_(most), things_(things) {}

  // Whether a step that has `count` things is full. Logs it the first time.
  bool reached(std::size_t count) noexcept;

 private:
  const std::size_t most_;
  const char* const things_;
  std::atomic<bool> logged_{false};
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/Parallel.h>

namespace gradmon {

// Sets torch's number of threads; the destructor restores it.
class ThreadCount {
 public:
  explicit ThreadCount(int threads) { at::set_num_threads(threads); }
  ~ThreadCount() { at::set_num_threads(before_); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  const int before_ = at::get_num_threads();
};

}  // namespace gradmon

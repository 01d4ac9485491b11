// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

namespace gradmon {

// While it lives, this thread stays on one processor and torch computes on this
// thread alone.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  cpu_set_t before_{};
  int torch_threads_;
};

}  // namespace gradmon

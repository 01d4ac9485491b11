// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

namespace gradmon {

// For its lifetime, pins this thread to one processor and limits torch to one thread.
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

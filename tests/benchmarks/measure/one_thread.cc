// SPDX-License-Identifier: Apache-2.0
#include "tests/benchmarks/measure/one_thread.h"

#include <ATen/Parallel.h>

namespace gradmon {

OneThread::OneThread() : torch_threads_(at::get_num_threads()) {
  at::set_num_threads(1);
  sched_getaffinity(0, sizeof before_, &before_);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<unsigned>(sched_getcpu()), &one);
  sched_setaffinity(0, sizeof one, &one);
}

OneThread::~OneThread() {
  sched_setaffinity(0, sizeof before_, &before_);
  at::set_num_threads(torch_threads_);
}

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <cstddef>
#include <thread>
#include <vector>

namespace gradmon {

// Runs a function on `count` new threads at a time. The destructor waits for their end.
class OnThreads {
 public:
  template <class Work>
  OnThreads(std::size_t count, const Work& work) {
    for (std::size_t i = 0; i < count; ++i) {
      threads_.emplace_back([work] {
        pthread_setname_np(pthread_self(), "gradmon-convert");
        work();
      });
    }
  }
  ~OnThreads() {
    for (std::thread& thread : threads_) thread.join();
  }
  OnThreads(const OnThreads&) = delete;
  OnThreads& operator=(const OnThreads&) = delete;

 private:
  std::vector<std::thread> threads_;
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// Process groups of real Gloo, with a thread for each rank.
#pragma once

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <csignal>
#include <functional>
#include <thread>

#include "tests/support/gloo_group.h"

namespace gradmon {

// Runs `body` once for each rank, on a thread of its own, and rethrows an exception of a rank. Ignores
// SIGPIPE, as Python does, because Gloo may write to a rank that has ended.
inline void run_ranks(int size, const std::function<void(GlooGroup&)>& body) {
  std::signal(SIGPIPE, SIG_IGN);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        GlooGroup end(store, rank, size, true);
        body(end);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace gradmon

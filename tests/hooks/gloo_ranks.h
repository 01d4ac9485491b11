// SPDX-License-Identifier: Apache-2.0
// Process groups of real Gloo, with a thread for each rank.
#pragma once

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "control/debian_version.h"
#ifdef GRADMON_C10D_OPS
#include <torch/csrc/distributed/c10d/Ops.hpp>
#endif

namespace gradmon {

using Work = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;

// One rank of a group. Its calls go through the dispatcher, as in Python.
class GlooRank {
 public:
  GlooRank(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size) : rank_(rank) {
    auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::minutes(1));
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
    options->threads = 1;
    auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
#ifdef GRADMON_C10D_OPS
    group_ = gloo;
#else
    group_ = c10::make_intrusive<c10d::ProcessGroup>(store, rank, size);
    group_->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::GLOO, gloo);
#endif
  }

  int rank() const { return rank_; }

#ifdef GRADMON_C10D_OPS
  Work all_reduce(Tensors tensors) { return c10d::ops::allreduce(group_, tensors); }
  Work broadcast(Tensors tensors) { return c10d::ops::broadcast(group_, tensors); }
  Work all_gather(std::vector<Tensors> out, Tensors in) { return c10d::ops::allgather(group_, out, in); }
  Work scatter(Tensors out, std::vector<Tensors> in) { return c10d::ops::scatter(group_, out, in); }
  Work send(Tensors tensors, int to) { return c10d::ops::send(group_, tensors, to, 0); }
  Work recv(Tensors tensors, int from) { return c10d::ops::recv(group_, tensors, from, 0); }
  Work barrier() { return c10d::ops::barrier(group_); }
#else
  Work all_reduce(Tensors tensors) { return group_->allreduce(tensors); }
  Work broadcast(Tensors tensors) { return group_->broadcast(tensors); }
  Work all_gather(std::vector<Tensors> out, Tensors in) { return group_->allgather(out, in); }
  Work scatter(Tensors out, std::vector<Tensors> in) { return group_->scatter(out, in); }
  Work send(Tensors tensors, int to) { return group_->send(tensors, to, 0); }
  Work recv(Tensors tensors, int from) { return group_->recv(tensors, from, 0); }
  Work barrier() { return group_->barrier(); }
#endif

 private:
  const int rank_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

// Runs `body` once for each rank, on a thread of its own, and rethrows an exception of a rank. Ignores
// SIGPIPE, as Python does, because Gloo may write to a rank that has ended.
inline void run_ranks(int size, const std::function<void(GlooRank&)>& body) {
  std::signal(SIGPIPE, SIG_IGN);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        GlooRank end(store, rank, size);
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

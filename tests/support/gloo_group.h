// SPDX-License-Identifier: Apache-2.0
// A process group of Gloo, made in C++. The wheels of torch have no headers of Gloo; those of Debian are
// used in their place, for gloo_group.cc only, which passes Gloo's objects on and looks into none of them.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <string>
#include <vector>

namespace c10d {
class ProcessGroup;
}

namespace gradmon {

// One rank of a group. Its calls go through torch's dispatcher, as they do from Python. One thread a rank;
// every rank must make its calls in the same order. The calls throw std::exception if a rank is lost.
class GlooGroup {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;

  // Listens on the network interface of GLOO_SOCKET_IFNAME if it is set, else on the loopback if
  // `one_host`, else on the host's address.
  GlooGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, bool one_host);
  ~GlooGroup();
  GlooGroup(GlooGroup&&) noexcept;

  int rank() const { return rank_; }
  int size() const { return size_; }

  Work all_reduce(Tensors tensors);
  Work broadcast(Tensors tensors);
  Work all_gather(std::vector<Tensors> out, Tensors in);
  Work scatter(Tensors out, std::vector<Tensors> in);
  Work send(Tensors tensors, int to);
  Work receive(Tensors tensors, int from);
  Work barrier();

 private:
  int rank_;
  int size_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

}  // namespace gradmon

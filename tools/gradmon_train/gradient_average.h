// SPDX-License-Identifier: Apache-2.0
// Data parallel training's one collective: every rank's gradients become the
// mean over all ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace gradmon {

// Where the ranks meet: rank 0 listens there.
struct Rendezvous {
  int rank;
  int world_size;
  std::string master_address;
  std::uint16_t master_port;
};

// One thread. Every rank makes its calls in the same order.
class GradientAverage {
 public:
  // Waits until all ranks have come, at most two minutes. Throws std::exception
  // if they do not.
  GradientAverage(const Rendezvous& where, std::vector<at::Tensor> parameters);
  ~GradientAverage();
  GradientAverage(const GradientAverage&) = delete;
  GradientAverage& operator=(const GradientAverage&) = delete;

  // Replaces the gradient of each parameter by the mean over the ranks; every
  // parameter must have one. Throws std::exception if a rank is lost.
  void average();

 private:
  struct Group;  // Gloo's types

  const std::vector<at::Tensor> parameters_;
  at::Tensor flat_;                 // all gradients in a row, so that one collective does
  std::vector<at::Tensor> slices_;  // views of flat_, one per parameter
  const std::unique_ptr<Group> group_;
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// The one collective of data-parallel training: the gradients of every rank become the mean
// over all ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace gradmon {

class GlooGroup;

// The address at which the ranks meet; rank 0 listens there.
struct Rendezvous {
  int rank;
  int world_size;
  std::string master_address;
  std::uint16_t master_port;
};

// Which parameters have a gradient when they are averaged.
enum class Participation { every_parameter, some_parameters };

// One thread. Every rank must make its calls in the same order.
class GradientAverage {
 public:
  // Waits until all ranks have connected, at most two minutes; throws std::exception after
  // that.
  GradientAverage(const Rendezvous& where, std::vector<at::Tensor> parameters, Participation participation);
  ~GradientAverage();
  GradientAverage(const GradientAverage&) = delete;
  GradientAverage& operator=(const GradientAverage&) = delete;

  // Replaces the gradient of each parameter by the mean over the ranks, bit for bit the same
  // on all ranks. With some_parameters, a missing gradient counts as zero, and a parameter
  // without a gradient on any rank gets none; this takes one more collective. Throws
  // std::exception if a rank is lost.
  void average();

 private:
  void sum(const at::Tensor& tensor) const;  // over the ranks
  // True if the gradient of each parameter exists on any rank.
  std::vector<bool> present() const;

  const std::vector<at::Tensor> parameters_;
  const Participation participation_;
  at::Tensor flat_;                 // all gradients concatenated, for one collective
  std::vector<at::Tensor> slices_;  // views of flat_, one per parameter
  const std::unique_ptr<GlooGroup> group_;
};

}  // namespace gradmon

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

// Which parameters have a gradient when they are averaged.
enum class Participation { every_parameter, some_parameters };

// One thread. Every rank makes its calls in the same order.
class GradientAverage {
 public:
  // Waits until all ranks have come, at most two minutes. Throws std::exception
  // if they do not.
  GradientAverage(const Rendezvous& where, std::vector<at::Tensor> parameters, Participation participation);
  ~GradientAverage();
  GradientAverage(const GradientAverage&) = delete;
  GradientAverage& operator=(const GradientAverage&) = delete;

  // Replaces the gradient of each parameter by the mean over the ranks, bit for
  // bit the same on all. Where only some parameters have one, a rank without
  // counts as zero, and a parameter that has none on any rank is left without; one
  // more collective finds that out. Throws std::exception if a rank is lost.
  void average();

 private:
  struct Group;  // Gloo's types

  // Whether the gradient of each parameter exists on any rank.
  std::vector<bool> present() const;

  const std::vector<at::Tensor> parameters_;
  const Participation participation_;
  at::Tensor flat_;                 // all gradients in a row, so that one collective does
  std::vector<at::Tensor> slices_;  // views of flat_, one per parameter
  const std::unique_ptr<Group> group_;
};

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// The ranks that a rank shares parameters with.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace gradmon {

// What all ranks of a group have alike is written by the first of them only. An
// empty group says nothing: everything is written.
struct ParallelGroups {
  // Ranks that hold the same parameters, each with data of its own: what is left
  // after reduction (grad_reduced, moments, weights) is alike. Not to be given
  // where the optimizer is sharded over them (ZeRO).
  std::vector<int> data;
  // Ranks that hold parts of a layer each. Parameters that are not split are alike
  // on all of them, gradients before reduction included.
  std::vector<int> tensor;
  // Whether a parameter is split over `tensor`; null: every one is.
  std::function<bool(const std::string& parameter)> split;
};

}  // namespace gradmon

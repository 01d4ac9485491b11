// SPDX-License-Identifier: Apache-2.0
// The ranks that a rank shares parameters or a model with.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace gradmon {

// The first rank of a group writes what is equal on all its ranks. With an empty group every
// rank writes everything.
struct ParallelGroups {
  // Ranks that hold the same parameters and train on different data: reduced gradients, moments
  // and weights are equal. Leave it empty if the optimizer is sharded over them (ZeRO).
  std::vector<int> data;
  // Ranks that each hold a part of a layer. Parameters that are not split are equal on all of
  // them, and so are their gradients before reduction.
  std::vector<int> tensor;
  // Returns true if a parameter is split over `tensor`. Null: all are split.
  std::function<bool(const std::string& parameter)> split;
  // Ranks that each hold a stage of the model, in the order of the stages. Alerts name them.
  std::vector<int> pipeline = {};
  // Ranks with the same reduced gradients, weights and moments: AnomalyRankDivergence compares them, and with
  // `"replicas": "first"` only one of them writes. Empty: `data`. This rank alone: no replicas.
  std::vector<int> replicas = {};
  // Each of `replicas` holds the moments of its own part of the parameters only (ZeRO): with `"replicas":
  // "first"` every rank still writes everything.
  bool moments_differ = false;
};

}  // namespace gradmon

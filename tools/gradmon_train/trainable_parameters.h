// SPDX-License-Identifier: Apache-2.0
// Which of a model's parameters a training moves.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/ordered_dict.h>

namespace gradmon {

// Each parameter once, under the first of its names: libtorch lists a shared one
// under each.
torch::OrderedDict<std::string, at::Tensor> distinct_parameters(const torch::nn::Module& model);

// Parameters whose name contains one of the patterns get no gradient any more.
// Throws std::invalid_argument for a pattern that no name contains, and where
// nothing is left to train.
void freeze(const torch::nn::Module& model, const std::vector<std::string>& patterns);

// The distinct ones that are not frozen: what is for the optimizer to have (it
// would pass over a parameter without gradient, but keep it).
std::vector<at::Tensor> trainable_parameters(const torch::nn::Module& model);

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// The parameters of a model that training updates.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/ordered_dict.h>

namespace gradmon {

// Each parameter once, under its first name. libtorch lists a shared parameter under each of
// its names.
torch::OrderedDict<std::string, at::Tensor> distinct_parameters(const torch::nn::Module& model);

// Parameters whose name contains one of the patterns get no gradient any more. Throws
// std::invalid_argument if no name contains a pattern, or if no parameter is left to train.
void freeze(const torch::nn::Module& model, const std::vector<std::string>& patterns);

// The distinct parameters that are not frozen, for the optimizer. (It would skip a parameter
// without a gradient, but keep it.)
std::vector<at::Tensor> trainable_parameters(const torch::nn::Module& model);

}  // namespace gradmon

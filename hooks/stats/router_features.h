// SPDX-License-Identifier: Apache-2.0
// How alike a mixture's experts are to its router, and how sure it is.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <tl/expected.hpp>

#include "hooks/stats/device_numbers.h"

namespace gradmon {

struct RouterFeature {
  double value = 0;
  PendingNumbers pending;  // not null: a device still computes it (NaN until then), of the tensor as it was
};

// Both: real floating numbers of any type and strides; computed in double,
// gradient mode and tensors unchanged, no gradient recorded. The error says why
// a tensor has no such number; what torch throws passes through.

// Mean cosine similarity over the N(N − 1)/2 pairs of expert vectors w_i. With
// ŵ_i = w_i / ‖w_i‖ it is (‖Σ ŵ_i‖² − Σ ‖ŵ_i‖²) / (N(N − 1)), which costs N · d. A zero
// vector is like none (its similarities are 0, as torch's cosine_similarity has
// it). `weight`: 2-D; the experts lie along the shorter side, as msprobe takes it
// (the rows, of a square one). At least two of them.
tl::expected<RouterFeature, std::string> router_cosine(const at::Tensor& weight);

// −Σ_e p_e log p_e in nats (Shannon's), p = softmax over the last dimension,
// averaged over all that comes before it (tokens). A logit of −inf is an expert
// that is not to be had: it weighs nothing.
tl::expected<RouterFeature, std::string> router_entropy(const at::Tensor& logits);

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// Similarity of the expert vectors of a mixture-of-experts router, and entropy of its decisions.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <tl/expected.hpp>

#include "hooks/device/device_scalars.h"

namespace gradmon {

struct RouterFeature {
  double value = 0;
  PendingScalars pending;  // not null: a device is still computing `value` (NaN until then)
};

// Both functions: real floating point of any type and strides, values as of the call; computed in double.
// Tensors and gradient mode stay unchanged, no gradient is recorded. The error is the reason why the tensor
// has no such number; torch's exceptions pass through.

// Mean cosine similarity over the N(N − 1)/2 pairs of expert vectors w_i. With ŵ_i = w_i / ‖w_i‖ it is
// (‖Σ ŵ_i‖² − Σ ‖ŵ_i‖²) / (N(N − 1)), which costs N · d. The similarities of a zero vector are 0, as in
// torch's cosine_similarity. `weight`: 2-D, with at least two experts along the shorter side, as in msprobe
// (square: along the rows).
tl::expected<RouterFeature, std::string> router_cosine(const at::Tensor& weight);

// −Σ_e p_e log p_e in nats (Shannon's), p = softmax over the last dimension, averaged over the other
// dimensions (tokens). An expert with the logit −inf has p = 0.
tl::expected<RouterFeature, std::string> router_entropy(const at::Tensor& logits);

}  // namespace gradmon

// SPDX-License-Identifier: Apache-2.0
// How sharply attention looks: numbers of the weights softmax(Q Kᵀ / √d),
// averaged over all rows of all heads of all batches.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <tl/expected.hpp>

#include "control/vocabulary.h"
#include "hooks/stats/device_numbers.h"

namespace gradmon {

struct AttentionFeatures {
  double entropy = 0;      // mean over rows of −Σ_j p_j log p_j, in nats (Shannon's)
  double softmax_max = 0;  // mean over rows of max_j p_j
  // Not null: a device still computes the two (NaN until then), of Q and K as they were.
  PendingNumbers pending;
};

// Q and K: 4-D, of real floating numbers, equal batch and head size; K may have
// fewer heads, each for as many of Q's that follow one another (grouped
// queries). Any strides. Computed in float32 (double: in double) in tiles: beside
// float copies of Q and K where they are of 16 bits or their elements do not lie
// side by side, scratch is about 256 · d numbers a thread, whatever the lengths.
// On torch's threads; the result does not depend on their number. On other
// devices torch's ops do the same, queued, 64 MiB of scores at a time.
//
// `causal`: query i sees the keys 0 … i, also where there are not as many keys
// as queries (upper left, as torch's scaled_dot_product_attention; msprobe knows
// square masks only). Other masks are not known here. A NaN, or an infinite
// score that a row sees, makes both numbers NaN, but for −inf beside finite
// ones, which weighs nothing.
//
// The error is why it does not apply: fewer than 4 dimensions, no elements,
// meta … Computes the same under autocast. Changes neither the tensors nor the
// gradient mode; what torch throws passes through.
tl::expected<AttentionFeatures, std::string> attention_features(const at::Tensor& q, const at::Tensor& k,
                                                                AxisOrder order, Causal causal);

// As on a device, where Q and K are: both as above, [b, h, s, d]. To be called
// without gradient mode.
PendingNumbers pending_attention_features(const at::Tensor& q, const at::Tensor& k, Causal causal);

}  // namespace gradmon
